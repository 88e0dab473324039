"""The toy device's runtime: ``csrc/runtime/toy.cpp``."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from .. import loading
from ..host_library import HostLibrary

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ToyRuntime", "ToyRuntimeBuilder"]


class ToyRuntimeBuilder(HostLibrary):
    """Builds the runtime."""

    NAME = "toy_runtime"
    SOURCES = ("runtime/toy.cpp",)

    def _load_library(self, binary: Path) -> ToyRuntime:
        return ToyRuntime(binary)


class ToyRuntime:
    """Starts kernels, and counts them."""

    kind = "toy"

    def __init__(self, binary: Path) -> None:
        library = loading.load_c_library(ToyRuntimeBuilder.NAME, binary)
        self.launch = ctypes.cast(library.anyaccel_toy_launch, ctypes.c_void_p).value or 0
        self.launches = library.anyaccel_toy_launches
        self.launches.restype = ctypes.c_int64
