"""The libraries of this project: C++ on the stable ABI, which serve CPU tensors and launch the kernels of devices."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any, ClassVar

from .builder import CPU_FLAGS, OpBuilder
from .engine import prebuilt
from .engine.targets import is_device_target, is_hip_target
from .op import CSRC

if TYPE_CHECKING:
    from pathlib import Path

    from .engine.build import Recipe
    from .engine.trace import Trace
    from .op import Op

__all__ = ["HostLibrary"]


class HostLibrary(OpBuilder):
    """Builds the host library of an op; a wheel may bring its binary.

    Attributes:
        OP: the op's row in the table; None for the runtimes, which are no ops.
        SOURCES: relative to ``csrc``.
    """

    STABLE_ABI = True
    OP: ClassVar[Op | None] = None

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        if self.OP is not None:
            self.OP.functions_class()  # imported with the builder, not in a load

    def absolute_name(self) -> str:
        return f"anyaccel._C.{self.name}"

    def source_root(self) -> Path:
        return CSRC

    def include_paths(self) -> list[str]:
        return ["includes", "stable", "runtime"]

    def cxx_args(self) -> list[str]:
        """Return flags for the fastest code that keeps IEEE results, with loops vectorised where they are marked.

        With ``-march=native`` compilers prefer 256 bits on Intel's CPUs, also where AVX-512 has them all; with a level such as
        ``x86-64-v4`` they do not. What computes (GELU, bfloat16) takes up to twice as long then.
        """
        widest = ["-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []
        return [*CPU_FLAGS, *widest, "-fopenmp-simd"]

    def prebuilt(self, trace: Trace) -> Path | None:
        """Return the library that a wheel brought for this machine, or None; the trace says why not."""
        return prebuilt.find_library(self.name, lambda target: self.recipe_for(target, any_compiler=True).key(), trace)

    def recipes(self, target: str) -> list[Recipe]:
        if not is_device_target(target):
            return [self.recipe_for(target)]
        if self.OP is None or not self.OP.kernels:
            return []
        if is_hip_target(target):
            from .hip import device_code as hip

            return [hip.device_code_recipe(self.OP, target)]
        from .cuda.device_code import device_code_recipe

        return [device_code_recipe(self.OP, target)]

    def namespaces(self) -> list[str]:
        """Return nothing: they share the namespace ``anyaccel``, each with fragments of it."""
        return []

    def functions(self) -> Any:
        if self.OP is None:
            raise NotImplementedError(self.name)
        return self.OP.functions_class()("anyaccel")
