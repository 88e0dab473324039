"""Registers the kernels of this folder with the op's loaded library, for the GPUs of this machine."""

from __future__ import annotations

import ctypes
import functools
import warnings
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["code_for", "register"]

_SPIRV = "spir64"


def register(folder: Path, library: Path, runtime: str, code: dict[str, Any]) -> None:
    """Register the kernels now, or when torch initialises its GPUs: importing a kernel must not, so that a process can fork.

    Args:
        folder: has the runtime and the code.
        library: the op's library, which has been loaded.
        runtime: the name of the library that starts kernels.
        code: for each target, the ``file``, and the ``symbols`` of its kernels.
    """
    kind = "xpu" if _SPIRV in code else "cuda"  # anyaccel: ignore[device-name]  # ROCm's torch has the same name
    torchs = torch.get_device_module(kind)
    torchs._lazy_call(functools.partial(_register, kind, folder, library, runtime, code, torchs.is_initialized()))


def _register(kind: str, folder: Path, library: Path, runtime: str, code: dict[str, Any], is_in_use: bool) -> None:
    torchs = torch.get_device_module(kind)
    units = "gpu_subslice_count" if kind == "xpu" else "multi_processor_count"
    try:
        starter = _Runtime(folder / f"{runtime}.so", runtime.removesuffix("_runtime"))
        add = ctypes.CDLL(str(library)).anyaccel_add_kernel
        add.argtypes = [ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, *[ctypes.c_void_p] * 2]
        add.restype = None
        known: dict[str, dict[str, int]] = {}
        for device in range(torchs.device_count()):
            properties = torchs.get_device_properties(device)
            target = code_for(properties, code)
            if target is None:
                warnings.warn(f"{folder} has no code for GPU {device}: only for {', '.join(code)}", stacklevel=2)
                continue
            if target not in known:
                image = starter.load((folder / code[target]["file"]).read_bytes())
                known[target] = {name: starter.kernel(image, of) for name, of in code[target]["symbols"].items()}
            for name, kernel in known[target].items():
                if is_in_use and device == torchs.current_device():  # a graph may capture its first launch
                    starter.prepare(kernel, device)
                add(kind.encode(), device, getattr(properties, units), name.encode(), starter.launch, kernel)
    except (OSError, RuntimeError) as error:  # it must not end the initialisation of torch's GPUs
        warnings.warn(f"{folder} cannot be used on GPUs: {error}", stacklevel=2)


def code_for(properties: Any, code: dict[str, Any]) -> str | None:
    """Return the target in ``code`` that is the best for a GPU, or None.

    Args:
        properties: of the GPU, as torch gives them.
        code: its keys are targets: ``sm_90`` runs on GPUs of the same generation, ``compute_90`` on later ones too, ``gfx942`` on
            this GPU only, ``spir64`` on all of Intel's.
    """
    if _SPIRV in code:
        return _SPIRV
    architecture = str(getattr(properties, "gcnArchName", "")).partition(":")[0]
    if architecture in code:
        return architecture
    here = properties.major, properties.minor

    def runs(target: str) -> bool:
        kind, _, number = target.partition("_")
        built_for = divmod(int(number.rstrip("af")), 10)
        if number.endswith("a"):
            return built_for == here
        return built_for <= here and (built_for[0] == here[0] or (kind == "compute" and number.isdigit()))

    fitting = [target for target in code if "_" in target and runs(target)]
    return max(
        fitting, key=lambda target: (target.startswith("sm"), int(target.partition("_")[2].rstrip("af"))), default=None
    )


class _Runtime:
    """The library that starts kernels; its functions return null, or a message."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._library = ctypes.CDLL(str(path))
        self._prefix = f"anyaccel_{prefix}_"
        self.launch = ctypes.cast(self._library[f"{self._prefix}launch"], ctypes.c_void_p).value

    def load(self, image: bytes) -> int:
        """Load device code, and return its handle."""
        return self._handle("load", image + b"\0", ctypes.c_size_t(len(image)))  # PTX must end with a zero

    def kernel(self, code: int, symbol: str) -> int:
        """Return the handle of a kernel."""
        return self._handle("kernel", ctypes.c_void_p(code), symbol.encode())

    def prepare(self, kernel: int, device: int) -> None:
        """Load a kernel on a device."""
        self._call("prepare", ctypes.c_void_p(kernel), ctypes.c_int32(device))

    def _handle(self, name: str, *arguments: Any) -> int:
        handle = ctypes.c_void_p()
        self._call(name, *arguments, ctypes.byref(handle))
        return handle.value or 0

    def _call(self, name: str, *arguments: Any) -> None:
        function = self._library[self._prefix + name]
        function.restype = ctypes.c_char_p
        error = function(*arguments)
        if error is not None:
            raise RuntimeError(error.decode(errors="replace"))
