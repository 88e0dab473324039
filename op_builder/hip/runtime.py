"""HIP's runtime: ``csrc/runtime/hip.cpp``, which opens ROCm's library on first use."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from .. import loading
from ..engine.errors import OpLoadError
from ..host_library import HostLibrary

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["HipRuntime", "HipRuntimeBuilder"]


class HipRuntimeBuilder(HostLibrary):
    """Builds the runtime; the build needs neither ROCm nor a GPU."""

    NAME = "hip_runtime"
    SOURCES = ("runtime/hip.cpp",)

    def _load_library(self, binary: Path) -> HipRuntime:
        return HipRuntime(binary)


class HipRuntime:
    """Loads code objects and starts their kernels on torch's current stream."""

    kind = "cuda"  # anyaccel: ignore[device-name]  # torch's name of ROCm devices

    def __init__(self, binary: Path) -> None:
        self._library = loading.load_c_library(HipRuntimeBuilder.NAME, binary)
        for name in ("open", "load", "kernel", "prepare"):
            getattr(self._library, f"anyaccel_hip_{name}").restype = ctypes.c_char_p
        self.launch = ctypes.cast(self._library.anyaccel_hip_launch, ctypes.c_void_p).value or 0

    def load(self, what: str, image: bytes) -> int:
        """Take a code object, for every device of its architecture, and return its handle.

        Args:
            what: the op's name, for messages.
            image: the code object.

        Raises:
            OpLoadError: when no HIP runtime is found.
        """
        handle = ctypes.c_void_p()
        self._check(what, self._library.anyaccel_hip_load(image, ctypes.c_size_t(len(image)), ctypes.byref(handle)))
        return handle.value or 0

    def kernel(self, what: str, code: int, symbol: str) -> int:
        """Return the handle of a kernel by its symbol, which is looked up by ``prepare``."""
        handle = ctypes.c_void_p()
        found = self._library.anyaccel_hip_kernel(ctypes.c_void_p(code), symbol.encode(), ctypes.byref(handle))
        self._check(what, found)
        return handle.value or 0

    def prepare(self, what: str, kernel: int, device: int) -> None:
        """Load a kernel on a device, so that a graph can capture its first launch.

        Raises:
            OpLoadError: when the runtime rejects the code object, or it has no such kernel.
        """
        self._check(what, self._library.anyaccel_hip_prepare(ctypes.c_void_p(kernel), device))

    def _check(self, what: str, error: bytes | None) -> None:
        if error is not None:
            msg = (
                f"loading or starting '{what}' failed: {error.decode(errors='replace')}. "
                f"Fix: use a ROCm build of torch, AMD's driver, and code for this GPU."
            )
            raise OpLoadError(msg)
