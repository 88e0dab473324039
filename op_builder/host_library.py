"""This project's libraries: C++ on the stable ABI for CPU tensors, which also launches device kernels."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from .builder import CPU_FLAGS, OpBuilder
from .cpu.autograd import built_beside, recorder
from .engine import prebuilt
from .engine.targets import NATIVE, OPENCL_CPU, SPIRV, is_device_target, is_higher_cpu_level, is_hip_target
from .op import CSRC, resolve

if TYPE_CHECKING:
    from pathlib import Path

    from .engine.build import Recipe
    from .engine.entry import Entry
    from .engine.trace import Trace
    from .op import Op

__all__ = ["HostLibrary"]


class HostLibrary(OpBuilder):
    """Builds the host library of an op; a wheel may include the binary.

    Attributes:
        OP: the op's row in the table; None for the runtimes and for asynchronous I/O, which have no kernels.
        SOURCES: relative to ``csrc``.

    Args:
        name: the op's name; ``NAME`` by default.
        namespace: the namespace of its torch ops; another than ours for a library that is not loaded by this class.
    """

    STABLE_ABI = True
    OP: ClassVar[Op | None] = None

    def __init__(self, name: str | None = None, *, namespace: str = "anyaccel") -> None:
        super().__init__(name)
        self._namespace = namespace
        if self.OP is not None and "torch" in sys.modules:  # a build of device code does without torch
            self.OP.functions_class()  # import the module with the builder, not during a load

    def absolute_name(self) -> str:
        return f"anyaccel._C.{self.name}"

    def source_root(self) -> Path:
        return CSRC

    def include_paths(self) -> list[str]:
        return ["includes", "stable", "runtime"]

    def cxx_args(self) -> list[str]:
        """Return flags for the fastest code with IEEE results, in which only marked loops are vectorised.

        With ``-march=native``, compilers prefer 256-bit vectors on Intel CPUs that have AVX-512; with a level such as
        ``x86-64-v4`` they do not. Compute-bound code (GELU, bfloat16) takes up to twice as long with 256 bits.
        """
        widest = ["-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []
        space = [] if self._namespace == "anyaccel" else [f"-DANYACCEL_NAMESPACE={self._namespace}"]
        return [*CPU_FLAGS, *widest, "-fopenmp-simd", *space]

    def prebuilt(self, trace: Trace) -> Path | None:
        """Return the wheel's library for this machine, or None; the trace records why not."""
        return prebuilt.find_library(self.name, lambda target: self.recipe_for(target, any_compiler=True).key(), trace)

    def build(self, target: str = NATIVE) -> Entry:
        """Build the op unless the cache has it, and beside it the library that records its gradients in C++."""
        if target != NATIVE or self.OP is None:
            return super().build(target)
        from ..kernels.functions.registration import has_derivatives_as_data

        if not has_derivatives_as_data(self.OP.functions_class()):
            return super().build(target)
        with built_beside():
            return super().build(target)

    def recipes(self, target: str) -> list[Recipe]:
        if self.OP is None and is_higher_cpu_level(target):
            return []  # without loops of numbers, it would be the same code again
        if not is_device_target(target):
            return [self.recipe_for(target)]
        if self.OP is None or not self.OP.kernels:
            return []
        if is_hip_target(target):
            from .hip import device_code as hip

            return [hip.device_code_recipe(self.OP, target)]
        if target in (OPENCL_CPU, SPIRV):
            name = "spirv_recipe" if target == SPIRV else "device_code_recipe"
            recipe = resolve(f"op_builder.xpu.device_code:{name}")  # by name, as it needs a builder
            return [recipe(self.OP)] if "xpu" in self.OP.devices else []
        from .cuda.device_code import device_code_recipe

        return [device_code_recipe(self.OP, target)]

    def namespaces(self) -> list[str]:
        """Return an empty list: the libraries share the namespace ``anyaccel``, of which each defines fragments."""
        return []

    def functions(self) -> Any:
        if self.OP is None:
            raise NotImplementedError(self.name)
        return self.OP.functions_class()(self._namespace, recorder)
