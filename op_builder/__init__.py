"""Finds op builders by name, and builds and loads their ops."""

from __future__ import annotations

if __name__ != "anyaccel.op_builder":
    msg = f"importing '{__name__}' failed: this package has no short name. Fix: import anyaccel.op_builder."
    raise ImportError(msg)

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .all_ops import BUILDERS, add_finder, builder_class, find_builder, load_op
    from .builder import CPUOpBuilder, OpBuilder
    from .cuda.builder import CUDAOpBuilder
    from .deepspeed.versions import installed_cuda_version
    from .engine.errors import (
        BuildError,
        BuildStoppedError,
        BuildTimeoutError,
        CacheError,
        DigestError,
        KernelFaultError,
        NoKernelError,
        OpError,
        OpLoadError,
        SettingError,
        TemporaryDirectoryError,
        ToolchainError,
    )
    from .xpu.builder import SYCLOpBuilder

__all__ = [
    "BUILDERS",
    "BuildError",
    "BuildStoppedError",
    "BuildTimeoutError",
    "CPUOpBuilder",
    "CUDAOpBuilder",
    "CacheError",
    "DigestError",
    "KernelFaultError",
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
    "installed_cuda_version",
    "load_op",
]


_MODULES = {
    **dict.fromkeys(("BUILDERS", "add_finder", "builder_class", "find_builder", "load_op"), "all_ops"),
    **dict.fromkeys(("CPUOpBuilder", "OpBuilder"), "builder"),
    "CUDAOpBuilder": "cuda.builder",
    "SYCLOpBuilder": "xpu.builder",
    "installed_cuda_version": "deepspeed.versions",
}


def __getattr__(name: str) -> Any:
    """Return a public name of this package, importing its module on first use."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found = getattr(importlib.import_module(f".{_MODULES.get(name, 'engine.errors')}", __name__), name)
    globals()[name] = found
    return found
