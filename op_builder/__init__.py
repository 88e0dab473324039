"""From a builder's name to a loaded op."""

from __future__ import annotations

if __name__ != "anyaccel.op_builder":
    msg = f"importing '{__name__}' failed: got a bare import; expected the full name. Fix: import anyaccel.op_builder."
    raise ImportError(msg)

from .all_ops import BUILDERS, builder_class, load_op
from .builder import OpBuilder
from .cpu.builder import CPUOpBuilder
from .cuda.builder import CUDAOpBuilder
from .engine.errors import BuildError, CacheError, NoKernelError, OpError, OpLoadError, ToolchainError
from .xpu.builder import SYCLOpBuilder

__all__ = [
    "BUILDERS",
    "BuildError",
    "CPUOpBuilder",
    "CUDAOpBuilder",
    "CacheError",
    "NoKernelError",
    "OpBuilder",
    "OpError",
    "OpLoadError",
    "SYCLOpBuilder",
    "ToolchainError",
    "builder_class",
    "load_op",
]
