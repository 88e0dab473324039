"""What this project's own ops share: the stable ABI, sources in ``csrc``, and binaries that a wheel may bring along."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from . import prebuilt
from .builder import OpBuilder
from .targets import is_cuda_target

if TYPE_CHECKING:
    from .engine.build import Recipe
    from .engine.device_code import DeviceCodeRecipe
    from .engine.trace import Trace

__all__ = ["CSRC", "BuiltInOp"]

CSRC = Path(__file__).resolve().parents[1] / "csrc"
"""The C++ and CUDA sources, beside this package in a checkout and inside it in a wheel."""


class BuiltInOp(OpBuilder):
    """An op of this project.

    Attributes:
        SOURCES: of the host, relative to ``csrc``.
        CUDA_SOURCE: the device code, relative to ``csrc``; empty when there is none.
    """

    STABLE_ABI = True
    CUDA_SOURCE: ClassVar[str] = ""

    def absolute_name(self) -> str:
        return f"anyaccel._C.{self.name}"

    def source_root(self) -> Path:
        return CSRC

    def include_paths(self) -> list[str]:
        return ["includes", "stable"]

    def prebuilt(self, trace: Trace) -> Path | None:
        """Return the library that a wheel brought for this machine, or None; the trace says why not."""
        return prebuilt.find_library(self, trace)

    def recipes(self, target: str) -> list[Recipe]:
        if not is_cuda_target(target):
            return [self.recipe_for(target)] if self.SOURCES else []
        return [self.device_code_recipe(target)] if self.CUDA_SOURCE else []

    def device_code_recipe(self, target: str) -> DeviceCodeRecipe:
        """Return everything that decides the device code for a GPU architecture.

        Args:
            target: ``sm_90`` for machine code, ``compute_120`` for PTX.

        Raises:
            ToolchainError: when there is no NVRTC.
        """
        from .engine.device_code import DeviceCodeRecipe
        from .engine.toolchains.nvrtc import choose_nvrtc

        source = CSRC / self.CUDA_SOURCE
        include_dirs = (CSRC / "includes", source.parent, CSRC / "device_std")
        return DeviceCodeRecipe(self.name, source, include_dirs, target, choose_nvrtc())

    def namespaces(self) -> list[str]:
        """Return nothing: they share the namespace ``anyaccel``, each with fragments of it."""
        return []

    @abc.abstractmethod
    def functions(self) -> Any:
        """Return the object whose attributes are the op's functions; called once its library is loaded."""
