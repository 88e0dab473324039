"""From a builder's name to a loaded op."""

from __future__ import annotations

if __name__ != "anyaccel.op_builder":
    msg = f"importing '{__name__}' failed: got a bare import; expected the full name. Fix: import anyaccel.op_builder."
    raise ImportError(msg)

from .all_ops import BUILDERS, builder_class, load_op
from .builder import CPUOpBuilder, OpBuilder
from .engine.errors import BuildError, CacheError, OpError, OpLoadError, ToolchainError

__all__ = [
    "BUILDERS",
    "BuildError",
    "CPUOpBuilder",
    "CacheError",
    "OpBuilder",
    "OpError",
    "OpLoadError",
    "ToolchainError",
    "builder_class",
    "load_op",
]
