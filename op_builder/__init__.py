"""From a builder's name to a loaded op."""

from __future__ import annotations

if __name__ != "anyaccel.op_builder":
    msg = f"importing '{__name__}' failed: got a bare import; expected the full name. Fix: import anyaccel.op_builder."
    raise ImportError(msg)

from typing import TYPE_CHECKING, Any

from .all_ops import BUILDERS, add_finder, builder_class, find_builder, load_op
from .builder import OpBuilder
from .cpu.builder import CPUOpBuilder
from .engine.errors import (
    BuildError,
    BuildStoppedError,
    BuildTimeoutError,
    CacheError,
    NoKernelError,
    OpError,
    OpLoadError,
    SettingError,
    TemporaryDirectoryError,
    ToolchainError,
)

if TYPE_CHECKING:
    from .cuda.builder import CUDAOpBuilder
    from .xpu.builder import SYCLOpBuilder

__all__ = [
    "BUILDERS",
    "BuildError",
    "BuildStoppedError",
    "BuildTimeoutError",
    "CPUOpBuilder",
    "CUDAOpBuilder",
    "CacheError",
    "NoKernelError",
    "OpBuilder",
    "OpError",
    "OpLoadError",
    "SYCLOpBuilder",
    "SettingError",
    "TemporaryDirectoryError",
    "ToolchainError",
    "add_finder",
    "builder_class",
    "find_builder",
    "load_op",
]


def __getattr__(name: str) -> Any:
    """Return the builders of devices that a program may never use."""
    if name == "CUDAOpBuilder":
        from .cuda.builder import CUDAOpBuilder

        return CUDAOpBuilder
    if name == "SYCLOpBuilder":
        from .xpu.builder import SYCLOpBuilder

        return SYCLOpBuilder
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
