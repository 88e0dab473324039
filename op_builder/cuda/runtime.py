"""CUDA's runtime: ``csrc/runtime/cuda.cpp``, which opens the driver on first use."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

from .. import loading
from ..engine.errors import OpLoadError
from ..host_library import HostLibrary
from .compatibility import driver_version

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CudaRuntime", "CudaRuntimeBuilder"]


class CudaRuntimeBuilder(HostLibrary):
    """Builds the runtime; it needs no CUDA header and no GPU to build."""

    NAME = "cuda_runtime"
    SOURCES = ("runtime/cuda.cpp",)

    def _load_library(self, binary: Path) -> CudaRuntime:
        return CudaRuntime(binary)


class CudaRuntime:
    """Loads device code and starts its kernels on torch's current stream."""

    kind = "cuda"

    def __init__(self, binary: Path) -> None:
        self._library = loading.load_c_library(CudaRuntimeBuilder.NAME, binary)
        for name in ("open", "load", "kernel", "is_used", "prepare", "allow_shared", "launch_grid"):
            function = getattr(self._library, f"anyaccel_cuda_{name}")
            function.restype = ctypes.c_char_p
        self._allowed: dict[tuple[int, int], int] = {}  # the dynamic shared bytes of a kernel on a device
        self._guard = threading.Lock()
        self.launch = ctypes.cast(self._library.anyaccel_cuda_launch, ctypes.c_void_p).value or 0

    def load(self, what: str, image: bytes) -> int:
        """Load machine code or PTX, for every device that it fits, and return its handle.

        Args:
            what: the op's or the kernel's name, for messages.
            image: a cubin, or PTX, which the driver compiles.

        Raises:
            OpLoadError: when there is no driver, or it rejects the code.
        """
        handle = ctypes.c_void_p()
        size = ctypes.c_size_t(len(image))
        self._check(what, self._library.anyaccel_cuda_load(image + b"\0", size, ctypes.byref(handle)))
        return handle.value or 0

    def kernel(self, what: str, library: int, symbol: str) -> int:
        """Return the handle of a kernel by its symbol.

        Raises:
            OpLoadError: when the code does not define the symbol.
        """
        handle = ctypes.c_void_p()
        called = self._library.anyaccel_cuda_kernel(ctypes.c_void_p(library), symbol.encode(), ctypes.byref(handle))
        self._check(what, called)
        return handle.value or 0

    def is_used(self, what: str, device: int) -> bool:
        """Return whether anything in the process uses a device already, without initialising it.

        Raises:
            OpLoadError: when the driver returns an error.
        """
        used = ctypes.c_int32()
        self._check(what, self._library.anyaccel_cuda_is_used(device, ctypes.byref(used)))
        return bool(used.value)

    def prepare(self, what: str, kernel: int, device: int) -> None:
        """Load a kernel on a device, so that a CUDA graph can capture its first launch.

        Raises:
            OpLoadError: when the driver returns an error.
        """
        self._check(what, self._library.anyaccel_cuda_prepare(ctypes.c_void_p(kernel), device))

    def launch_grid(
        self, what: str, kernel: int, device: int, grid: tuple[int, int, int], block: tuple[int, int, int],
        shared_bytes: int, arguments: list[Any],
    ) -> None:  # fmt: skip
        """Start a kernel.

        Args:
            what: the kernel's name, for messages.
            kernel: its handle.
            device: the device's index.
            grid: the number of blocks in each direction.
            block: the number of threads in each direction.
            shared_bytes: dynamic shared memory per block.
            arguments: ctypes values, one per parameter.

        Raises:
            OpLoadError: when the driver returns an error.
        """
        pointers = (ctypes.c_void_p * max(1, len(arguments)))(*(ctypes.addressof(value) for value in arguments))
        if shared_bytes > 0:
            self._allow_shared(what, kernel, device, shared_bytes)
        sizes = ctypes.c_uint32 * 3
        started = self._library.anyaccel_cuda_launch_grid(
            ctypes.c_void_p(kernel), device, sizes(*grid), sizes(*block), ctypes.c_uint32(shared_bytes), pointers
        )
        self._check(what, started)

    def _allow_shared(self, what: str, kernel: int, device: int, shared_bytes: int) -> None:
        """Allow a kernel dynamic shared memory; without it, that and the kernel's own arrays have 48 KiB together.

        Never less than before: another thread may be about to launch it with more.
        """
        with self._guard:
            if shared_bytes > self._allowed.get((kernel, device), 0):
                allowed = self._library.anyaccel_cuda_allow_shared(ctypes.c_void_p(kernel), device, shared_bytes)
                self._check(what, allowed)
                self._allowed[kernel, device] = shared_bytes

    def _check(self, what: str, error: bytes | None) -> None:
        if error is not None:
            driver = driver_version()
            here = "none was found" if driver is None else "this driver supports CUDA {}.{}".format(*driver)
            msg = (
                f"loading or starting '{what}' failed: {error.decode(errors='replace')}. "
                f"Fix: use code for this GPU, and an NVIDIA driver for CUDA 12.0 or newer; {here}."
            )
            raise OpLoadError(msg)
