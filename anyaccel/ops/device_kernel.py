"""``DeviceKernel``: a kernel of your own, from source text to a launch on tensors."""

# anyaccel: ignore-file[device-name]  "cuda" is a language here
from __future__ import annotations

import ctypes
import operator
import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..accelerator.detection import kernel_kind
from ..kernels.functions.registration import mark_changed
from ..op_builder.engine.targets import is_cuda_target
from .emulated_launcher import EmulatedLauncher
from .kernel_launchers import TENSORS, WRITTEN, CudaLauncher, HostSyclLauncher, Launch, PtxLauncher, XpuLauncher
from .kernel_source import KernelSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..op_builder.engine.entry import Entry
    from .kernel_launchers import Launcher

__all__ = ["DeviceKernel"]

_SCALARS: dict[str, Any] = {
    "bool": ctypes.c_bool, "int32": ctypes.c_int32, "int64": ctypes.c_int64, "uint32": ctypes.c_uint32,
    "uint64": ctypes.c_uint64, "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip
_LAUNCHERS: dict[tuple[str, str], type[Launcher]] = {
    ("cuda", "cuda"): CudaLauncher,
    ("cuda", "cpu"): EmulatedLauncher,
    ("ptx", "cuda"): PtxLauncher,
    ("sycl", "xpu"): XpuLauncher,
    ("sycl", "cpu"): HostSyclLauncher,
}
_MOST_BLOCKS = 2**31 - 1  # of a dimension, as in CUDA
_SUFFIXES = {"cuda": ".cu", "ptx": ".ptx", "sycl": ".sycl"}


class DeviceKernel:
    """A kernel of your own, compiled at run time from source text and launched on tensors: ``kernel(*values, grid=, block=)``.

    CUDA source is compiled by NVRTC for the tensors' GPU and runs on torch's current stream, also while a graph is captured, if
    it has been launched on that GPU before; for CPU tensors it is compiled by the C++ compiler and runs in an emulator of
    blocks, which names races, diverging barriers and accesses out of bounds by their line. PTX is compiled by the driver. SYCL
    source is compiled by DPC++ and runs on torch's current queue for XPU tensors, and on Intel's OpenCL CPU device for CPU
    tensors. A source is compiled at the first launch and kept in anyaccel's cache. There is no gradient.

    Args:
        source: the text of the source: CUDA C++, PTX, or SYCL; or the path of a file. Errors then name the file, and
            its folder is searched for headers.
        name: the kernel's name: for CUDA a ``__global__`` function or an instance of a template such as ``scale<float>``; for
            PTX an entry; for SYCL an ``extern "C"`` free-function kernel of one dimension.
        args: the type of each parameter, in order: ``"tensor"`` for a pointer to a contiguous tensor's elements, ``"const
            tensor"`` for one to elements that the kernel only reads; or ``"bool"``, ``"int32"``, ``"int64"``, ``"uint32"``,
            ``"uint64"``, ``"float32"``, ``"float64"``. To autograd, a launch changes every ``"tensor"``.
        language: ``"cuda"``, ``"ptx"`` or ``"sycl"``.
        options: more options for the compiler, such as ``-DROWS=4``.
        include_dirs: where the headers are that the source includes. Only CUDA and SYCL have them.

    Raises:
        ValueError: if ``language`` or an entry of ``args`` is not one of these, or, from a launch, if a tensor is strided or on
            the wrong device, an integer is out of its type's range, or ``grid`` or ``block`` does not fit.
        TypeError: from a launch, if the number or the type of the values does not fit ``args``.
        OpError: from a launch, if there is no compiler (ToolchainError), it refuses the source (BuildError), or the device
            refuses the launch (OpLoadError), or the kernel does in the emulator what a GPU leaves undefined (KernelFaultError).

    Source: docs/device-kernels.md

    Example:
        >>> text = '''
        ...   #include <sycl/sycl.hpp>
        ...   extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>))
        ...   void twice(float* x) { x[sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_linear_id()] *= 2; }'''
        >>> twice, x = DeviceKernel(text, "twice", args=("tensor",), language="sycl"), torch.tensor([1.0, 2.0, 3.0, 4.0])
        >>> twice(x, grid=1, block=4), x
        (None, tensor([2., 4., 6., 8.]))
    """

    def __init__(
        self,
        source: str | Path,
        name: str,
        args: Sequence[str],
        *,
        language: Literal["cuda", "ptx", "sycl"] = "cuda",
        options: Sequence[str] = (),
        include_dirs: Sequence[str | Path] = (),
    ) -> None:
        _require_texts(name, source)
        if language not in _SUFFIXES:
            raise _refusal(name, f"language {language!r}", f"one of {', '.join(_SUFFIXES)}", "pass language='cuda'")
        args = _texts(name, "args", args)
        unknown = [arg for arg in args if arg not in TENSORS and arg not in _SCALARS]
        if unknown:
            choices = ", ".join([*TENSORS, *_SCALARS])
            fix = "write one of these for each parameter, such as ['tensor', 'int32']"
            raise _refusal(name, f"args {unknown}", f"some of {choices}", fix)
        folders = tuple(Path(folder).absolute() for folder in _texts(name, "include_dirs", include_dirs))
        if isinstance(source, Path):
            folders = (source.absolute().parent, *folders)
            source = _with_its_name(source, language)
        self.source = KernelSource(source, name, _SUFFIXES[language], tuple(_texts(name, "options", options)), folders)
        self.name = name
        self.args = tuple(args)
        self.language = language
        self._launchers: dict[torch.device, Launcher] = {}
        self._lock = threading.Lock()
        _kernels.add(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return what was given: a copy, also in another process, compiles or loads the kernel again."""
        return {name: value for name, value in vars(self).items() if name not in ("_launchers", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _launchers={}, _lock=threading.Lock())
        _kernels.add(self)

    def __call__(
        self, *values: Any, grid: int | tuple[int, ...], block: int | tuple[int, ...], shared_bytes: int = 0
    ) -> None:
        """Start the kernel. On the CPU it has ended when this returns; on a GPU it is queued.

        Args:
            *values: one for each entry of ``args``: contiguous tensors, all on one device, and numbers.
            grid: how many blocks (work-groups): an int or up to three of them; SYCL takes one. A 0 launches nothing.
            block: how many threads (work-items) a block has, in the same way; 1 or more.
            shared_bytes: bytes of dynamic shared memory of a block, only for CUDA and PTX.

        Raises:
            TypeError: if the number or the type of the values does not fit ``args``.
            ValueError: if a tensor is strided or on the wrong device, an integer is out of its type's range, or ``grid``,
                ``block`` or ``shared_bytes`` does not fit.
            ToolchainError: if there is no compiler for the language.
            BuildError: with the compiler's first errors, if it refuses the source.
            OpLoadError: if the device refuses the launch.
            KernelFaultError: if CUDA source does on CPU tensors what a GPU leaves undefined.
        """
        passed = self._passed(values)
        device = self._device(values)
        sizes = _three(self.name, "grid", grid), _three(self.name, "block", block)
        if not hasattr(shared_bytes, "__index__") or not 0 <= operator.index(shared_bytes) <= _MOST_BLOCKS:
            raise _refusal(self.name, f"shared_bytes {shared_bytes}", "an integer of 0 or more", "pass shared_bytes=0")
        shared_bytes = operator.index(shared_bytes)
        if self.language == "sycl" and (sizes[0][1:] + sizes[1][1:] != (1, 1, 1, 1) or shared_bytes):
            got = f"grid {grid}, block {block} and {shared_bytes} shared bytes"
            fix = "pass one number each, and declare local memory in the source: docs/device-kernels.md"
            raise _refusal(self.name, got, "one dimension and no shared bytes for SYCL", fix)
        if 0 in sizes[0]:
            return
        self._launcher(device).launch(device, Launch(*sizes, shared_bytes, self.args, values, passed))
        written = [value for arg, value in zip(self.args, values, strict=True) if arg == WRITTEN]
        mark_changed([tensor for tensor in written if not tensor.is_inference()])

    def compile(self, target: str) -> Entry:
        """Compile CUDA, or assemble PTX, into the cache, without a GPU.

        Args:
            target: the GPU's architecture, such as ``sm_90``; or ``compute_120``, which compiles CUDA to PTX; or ``cpu``, which
                compiles CUDA for the emulator.

        Returns:
            The entry in the cache; ``entry.binary`` is the path of the result.

        Raises:
            ValueError: if the source is SYCL, or the target is none of these.
            ToolchainError: if there is no NVRTC, or for PTX no ptxas, or for the emulator no C++ compiler.
            BuildError: with the compiler's first errors, if it refuses the source.
        """
        if self.language == "sycl":
            raise _refusal(self.name, "language 'sycl'", "'cuda' or 'ptx'", "call the kernel, which compiles it")
        if self.language == "cuda" and target == "cpu":
            return EmulatedLauncher.build(self.source)
        if not is_cuda_target(target):
            raise _refusal(
                self.name, f"target {target!r}", "an architecture such as 'sm_90'", "pass 'sm_90' for an H100, or 'cpu'"
            )
        launcher = CudaLauncher if self.language == "cuda" else PtxLauncher
        return self.source.build(launcher.recipe(self.source, target))

    def _launcher(self, device: torch.device) -> Launcher:
        with self._lock:
            if device not in self._launchers:
                launcher = _LAUNCHERS.get((self.language, device.type))
                if launcher is not None and kernel_kind(device.type) == "hip":
                    got = (
                        f"{self.language} source for {device}, an AMD GPU (torch {torch.__version__} is built for ROCm)"
                    )
                    fix = "move the tensors to the CPU" if self.language == "cuda" else "use CUDA source on CPU tensors"
                    raise _refusal(self.name, got, "an NVIDIA GPU", f"{fix}, or write an op: docs/writing-an-op.md")
                if launcher is None:
                    served = " and ".join(kind for language, kind in _LAUNCHERS if language == self.language)
                    first = served.partition(" and ")[0]
                    fix = f"move each tensor with tensor.to('{first}')"
                    raise _refusal(self.name, f"tensors on {device}", f"{served} tensors for {self.language}", fix)
                self._launchers[device] = launcher(self.source, device)
            return self._launchers[device]

    def _passed(self, values: Sequence[Any]) -> list[Any]:
        if len(values) != len(self.args):
            msg = (
                f"launching '{self.name}' failed: got {len(values)} values; expected {len(self.args)}. "
                f"Fix: pass one value for each entry of args, {', '.join(self.args)}."
            )
            raise TypeError(msg)
        return [self._converted(i, arg, value) for i, (arg, value) in enumerate(zip(self.args, values, strict=True))]

    def _converted(self, index: int, arg: str, value: Any) -> Any:
        if arg in TENSORS:
            if not isinstance(value, torch.Tensor):
                msg = (
                    f"launching '{self.name}' failed: got {type(value).__name__} for args[{index}]; expected a tensor. "
                    f"Fix: pass torch.tensor(...), or change args[{index}] to the type of a number."
                )
                raise TypeError(msg)
            reason = _unplain(value)
            if reason:
                raise _refusal(self.name, f"{reason[0]} for args[{index}]", *reason[1:])
            return ctypes.c_void_p(value.data_ptr())
        try:
            if arg == "bool" and not isinstance(value, bool):
                value = operator.index(value)  # a word or a list has a truth, too
            converted = _SCALARS[arg](value)
        except OverflowError as error:
            raise _refusal(
                self.name, f"{value} for args[{index}]", f"a number that {arg} holds", "pass a smaller number"
            ) from error
        except (
            TypeError,
            ValueError,
            RuntimeError,
        ) as error:  # a tensor or an array of several numbers, or without memory
            msg = (
                f"launching '{self.name}' failed: got {type(value).__name__} for args[{index}]; expected a number for {arg}. "
                f"Fix: pass a number, or change args[{index}]."
            )
            raise TypeError(msg) from error
        if arg.startswith(("int", "uint")) and converted.value != value:
            raise _refusal(
                self.name,
                f"{value} for args[{index}]",
                f"a number that {arg} holds",
                "use a wider type in args and in the source",
            )
        return converted

    def _device(self, values: Sequence[Any]) -> torch.device:
        devices = list(dict.fromkeys(value.device for value in values if isinstance(value, torch.Tensor)))
        if len(devices) != 1:
            found = ", ".join(map(str, devices)) or "no tensor"
            fix = f"move the others with tensor.to('{devices[0]}')" if devices else "pass one or more tensors"
            raise _refusal(self.name, found, "tensors on one device", fix)
        return devices[0]


_kernels: weakref.WeakSet[DeviceKernel] = weakref.WeakSet()


def _renew_locks() -> None:
    """Replace the locks in a forked child: the threads that hold them exist only in its parent."""
    for kernel in _kernels:
        kernel._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


def _with_its_name(file: Path, language: str) -> str:
    """Return a file's text after a ``#line`` directive, so that compilers name the file."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"reading {file} failed: got a byte that is not UTF-8 ({error.reason}). Fix: save the file in UTF-8."
        raise ValueError(msg) from error
    if language == "ptx":
        return text
    quoted = str(file.absolute()).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line 1 "{quoted}"\n{text}'


def _unplain(tensor: torch.Tensor) -> tuple[str, str, str] | None:
    """Return why a kernel cannot take the address of a tensor, what is expected and the fix; None if it can."""
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}", "a dense one", "pass tensor.to_dense()"
    if not tensor.is_contiguous():
        return "a strided tensor", "a contiguous one", "pass tensor.contiguous()"
    if tensor.is_conj() or tensor.is_neg():
        return "a tensor whose memory has other numbers", "plain ones", "pass tensor.resolve_conj().resolve_neg()"
    needed = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    if tensor.numel() and not tensor.is_meta and tensor.untyped_storage().nbytes() < needed:
        return "a tensor whose storage was freed", f"{needed} bytes", "resize the storage before the launch"
    return None


def _three(name: str, what: str, sizes: int | tuple[int, ...]) -> tuple[int, int, int]:
    least = 0 if what == "grid" else 1
    try:
        given = [operator.index(size) for size in (sizes if isinstance(sizes, tuple | list) else (sizes,))]
    except TypeError:
        given = []
    if not 1 <= len(given) <= 3 or not all(least <= size <= _MOST_BLOCKS for size in given):
        expected = f"1 to 3 integers from {least} to {_MOST_BLOCKS}"
        raise _refusal(name, f"{what} {sizes}", expected, f"pass {what}={least or 1}, or a tuple")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _require_texts(name: Any, source: Any) -> None:
    if not isinstance(name, str):
        raise _refusal(name, f"a name of type {type(name).__name__}", "a text", "pass the kernel's name")
    if not isinstance(source, str | Path):
        fix = "pass the text itself, or a pathlib.Path"
        raise _refusal(name, f"source of type {type(source).__name__}", "a text or a Path", fix)


def _texts(name: str, what: str, given: Sequence[str | Path]) -> list[str]:
    """Return args, options or folders as texts; relative folders in options are of the current directory."""
    is_list = hasattr(given, "__iter__") and not isinstance(given, str | bytes | Path)
    listed = list(given) if is_list else [None]
    if not all(isinstance(one, str | Path) for one in listed):
        raise _refusal(name, f"{what}={given!r}", "a list of texts", f"pass {what}=[...]")
    return [f"-I{Path(text[2:]).absolute()}" if text[:2] == "-I" and text[2:] else text for text in map(str, listed)]


def _refusal(name: str, got: str, expected: str, fix: str) -> ValueError:
    return ValueError(f"launching '{name}' failed: got {got}; expected {expected}. Fix: {fix}.")
