"""``DeviceKernel``: a kernel of one's own, from source text to a launch on tensors."""

# anyaccel: ignore-file[device-name]  "cuda" is a language here
from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..op_builder import environment
from ..op_builder.engine.build import ensure_built
from ..op_builder.engine.cache import open_cache
from ..op_builder.functions.registration import mark_changed
from .kernel_launchers import CudaLauncher, HostSyclLauncher, PtxLauncher, XpuLauncher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..op_builder.engine.device_code import DeviceCodeRecipe
    from ..op_builder.engine.entry import Entry
    from .kernel_launchers import Launcher

__all__ = ["DeviceKernel"]

_SCALARS: dict[str, Any] = {
    "bool": ctypes.c_bool, "int32": ctypes.c_int32, "int64": ctypes.c_int64, "uint32": ctypes.c_uint32,
    "uint64": ctypes.c_uint64, "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip
_LAUNCHERS: dict[tuple[str, str], type[Launcher]] = {
    ("cuda", "cuda"): CudaLauncher,
    ("ptx", "cuda"): PtxLauncher,
    ("sycl", "xpu"): XpuLauncher,
    ("sycl", "cpu"): HostSyclLauncher,
}
_SUFFIXES = {"cuda": ".cu", "ptx": ".ptx", "sycl": ".sycl"}


class DeviceKernel:
    """A kernel compiled at run time from source, and launched on tensors.

    CUDA source is compiled by NVRTC for the tensors' GPU and runs on torch's current stream, within a graph's capture too.
    SYCL source is compiled by DPC++ and runs on torch's current queue for XPU tensors, and on Intel's OpenCL CPU device for
    CPU tensors. Results are kept in anyaccel's cache.

    Args:
        source: CUDA C++, PTX, or SYCL.
        name: the kernel's: of CUDA a ``__global__`` function or an instance of a template such as ``scale<float>``; of PTX an
            entry; of SYCL an ``extern "C"`` free-function kernel of one dimension.
        args: the kernel's parameters in order: ``"tensor"`` for a pointer, or ``"bool"``, ``"int32"``, ``"int64"``,
            ``"uint32"``, ``"uint64"``, ``"float32"``, ``"float64"``.
        language: ``"cuda"``, ``"ptx"`` or ``"sycl"``.
        options: further options of the compiler, such as ``-DROWS=4``.
        include_dirs: where the source's own headers are.

    Raises:
        ValueError: for a language or parameter that there is not.

    Source: docs/device-kernels.md
    """

    def __init__(
        self,
        source: str,
        name: str,
        args: Sequence[str],
        *,
        language: Literal["cuda", "ptx", "sycl"] = "cuda",
        options: Sequence[str] = (),
        include_dirs: Sequence[str | Path] = (),
    ) -> None:
        if language not in _SUFFIXES:
            raise _refusal(name, f"language {language!r}", f"one of {', '.join(_SUFFIXES)}", "choose one of them")
        unknown = [arg for arg in args if arg != "tensor" and arg not in _SCALARS]
        if unknown:
            choices = ", ".join(["tensor", *_SCALARS])
            raise _refusal(name, f"args {unknown}", f"some of {choices}", "name each parameter's type")
        self.source = source
        self.name = name
        self.args = tuple(args)
        self.language = language
        self.options = tuple(options)
        self.include_dirs = tuple(Path(folder).absolute() for folder in include_dirs)
        self._launchers: dict[torch.device, Launcher] = {}
        self._lock = threading.Lock()

    def __call__(
        self, *values: Any, grid: int | tuple[int, ...], block: int | tuple[int, ...], shared_bytes: int = 0
    ) -> None:
        """Start the kernel; on the CPU it has ended when this returns.

        Args:
            *values: one for each parameter: contiguous tensors, all on one device, and numbers.
            grid: blocks (work-groups), of up to three dimensions; SYCL takes one.
            block: threads of a block (work-items), likewise.
            shared_bytes: dynamic shared memory of a block, on CUDA.

        Raises:
            TypeError: when a value does not fit its parameter.
            ValueError: when tensors, grid or block do not fit.
            BuildError: with the compiler's first errors, when it refuses the source.
            OpLoadError: when the device refuses the launch.
        """
        passed = self._passed(values)
        device = self._device(values)
        sizes = _three(self.name, "grid", grid), _three(self.name, "block", block)
        if self.language == "sycl" and (sizes[0][1:] + sizes[1][1:] != (1, 1, 1, 1) or shared_bytes):
            got = f"grid {grid}, block {block} and {shared_bytes} shared bytes"
            raise _refusal(self.name, got, "one dimension and no shared bytes for SYCL", "see docs/device-kernels.md")
        if 0 not in sizes[0]:
            self._launcher(device).launch(device, *sizes, shared_bytes, passed)
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        mark_changed([tensor for tensor in tensors if not tensor.is_inference()])

    def compile(self, target: str) -> Entry:
        """Compile CUDA, or assemble PTX, for a GPU that need not be here, into the cache.

        Args:
            target: such as ``sm_90``, or ``compute_120`` for CUDA as PTX.

        Raises:
            ValueError: when the source is SYCL.
            ToolchainError: when there is no NVRTC, or for PTX no ptxas.
            BuildError: with its first errors, when it refuses the source.
        """
        if self.language == "sycl":
            raise _refusal(self.name, "language 'sycl'", "'cuda' or 'ptx'", "launch it: it is compiled then")
        launcher = CudaLauncher if self.language == "cuda" else PtxLauncher
        return self.build(launcher.recipe(self, target))

    def build(self, recipe: DeviceCodeRecipe) -> Entry:
        """Follow a recipe where its result is not in the cache."""
        return ensure_built(recipe, open_cache(environment.cache_dir()), environment.build_jobs())

    def source_file(self) -> Path:
        """Return a file with the source, whose name its content decides."""
        return open_cache(environment.cache_dir()).keep_source(self.source, _SUFFIXES[self.language])

    def _launcher(self, device: torch.device) -> Launcher:
        with self._lock:
            if device not in self._launchers:
                launcher = _LAUNCHERS.get((self.language, device.type))
                if launcher is None:
                    served = " and ".join(kind for language, kind in _LAUNCHERS if language == self.language)
                    raise _refusal(
                        self.name, f"tensors on {device}", f"{served} tensors for {self.language}", "move them"
                    )
                self._launchers[device] = launcher(self, device)
            return self._launchers[device]

    def _passed(self, values: Sequence[Any]) -> list[Any]:
        if len(values) != len(self.args):
            msg = (
                f"launching '{self.name}' failed: got {len(values)} values; expected {len(self.args)}. "
                f"Fix: pass one for each of args."
            )
            raise TypeError(msg)
        return [self._converted(i, arg, value) for i, (arg, value) in enumerate(zip(self.args, values, strict=True))]

    def _converted(self, index: int, arg: str, value: Any) -> Any:
        if arg == "tensor":
            if not isinstance(value, torch.Tensor):
                msg = (
                    f"launching '{self.name}' failed: got {type(value).__name__} for args[{index}]; expected a tensor. "
                    f"Fix: pass one."
                )
                raise TypeError(msg)
            if not value.is_contiguous():
                raise _refusal(
                    self.name, f"a strided tensor for args[{index}]", "a contiguous one", "call contiguous()"
                )
            return ctypes.c_void_p(value.data_ptr())
        converted = _SCALARS[arg](value)  # refuses what is no number
        if arg.startswith(("int", "uint")) and converted.value != value:
            raise _refusal(self.name, f"{value} for args[{index}]", f"a number that {arg} holds", "use a wider type")
        return converted

    def _device(self, values: Sequence[Any]) -> torch.device:
        devices = list(dict.fromkeys(value.device for value in values if isinstance(value, torch.Tensor)))
        if len(devices) != 1:
            found = ", ".join(map(str, devices)) or "no tensor"
            raise _refusal(self.name, found, "tensors on one device", "move them")
        return devices[0]


def _three(name: str, what: str, sizes: int | tuple[int, ...]) -> tuple[int, int, int]:
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    least = 0 if what == "grid" else 1
    if not 1 <= len(given) <= 3 or any(not isinstance(size, int) or size < least for size in given):
        raise _refusal(name, f"{what} {sizes}", f"1 to 3 integers of {least} or more", "correct it")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _refusal(name: str, got: str, expected: str, fix: str) -> ValueError:
    return ValueError(f"launching '{name}' failed: got {got}; expected {expected}. Fix: {fix}.")
