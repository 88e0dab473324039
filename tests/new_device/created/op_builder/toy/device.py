"""The toy device for this project's ops: the C++ compiler compiles kernels from the ops' headers."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from .. import loading
from ..device_kernels import register_kernels
from ..engine.errors import OpLoadError
from ..host_library import HostLibrary
from .runtime import ToyRuntimeBuilder

if TYPE_CHECKING:
    from ..op import Op

__all__ = ["ToyDevice"]


class ToyDevice:
    """The host's memory under another name, as one device."""

    kind = "toy"
    namespace = "anyaccel"

    def require(self, op: str) -> None:
        from ...accelerator.detection import rejection

        if problem := rejection(self.kind):
            msg = f"loading the op '{op}' failed: got no toy device: {problem}; expected one. Fix: import torch_toy."
            raise OpLoadError(msg)

    def code_problem(self, op: Op) -> str:
        return ToyRuntimeBuilder().incompatibility()

    def load_runtime(self) -> None:
        ToyRuntimeBuilder().load()

    def register(self, op: Op) -> None:
        runtime = ToyRuntimeBuilder().load()
        code = loading.load_c_library(op.name, _ToyKernelsBuilder(op).build().binary)
        find = code.anyaccel_toy_kernel
        find.restype = ctypes.c_void_p
        register_kernels(op.name, runtime, 0, {name: find(name.encode()) for name in op.kernels})


class _ToyKernelsBuilder(HostLibrary):
    """Builds the kernels of an op."""

    SOURCES = ("runtime/toy_kernels.cpp",)

    def __init__(self, op: Op) -> None:
        super().__init__(f"{op.name}_toy")
        self._op = op

    def cxx_args(self) -> list[str]:
        instances = "".join(f"ANYACCEL_KERNEL({name})" for name in self._op.kernels)
        return [*super().cxx_args(), self._op.header_macro(), f"-DANYACCEL_KERNELS={instances}"]
