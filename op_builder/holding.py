"""Builders that load the op of another builder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .builder import OpBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from .engine.build import Recipe
    from .engine.native import NativeRecipe
    from .engine.trace import Trace

__all__ = ["HoldingBuilder"]


class HoldingBuilder(OpBuilder):
    """Loads the op of another builder, and wraps its functions.

    Attributes:
        HELD: the class of the other builder.
        held: the other builder.
    """

    STABLE_ABI = True
    HELD: ClassVar[type[OpBuilder]]

    def __init__(self) -> None:
        self.held = self.HELD()
        super().__init__(self.held.name)

    def require_torch(self) -> None:
        self.held.require_torch()

    def prebuilt(self, trace: Trace) -> Any:
        return self.held.prebuilt(trace)

    def recipe_for(self, target: str, *, any_compiler: bool = False) -> NativeRecipe:
        return self.held.recipe_for(target, any_compiler=any_compiler)

    def recipes(self, target: str) -> list[Recipe]:
        return self.held.recipes(target)

    def sources(self) -> list[str]:
        return self.held.sources()

    def source_root(self) -> Path:
        return self.held.source_root()

    def include_paths(self) -> list[str]:
        return self.held.include_paths()

    def cxx_args(self) -> list[str]:
        return self.held.cxx_args()

    def nvcc_args(self) -> list[str]:
        return self.held.nvcc_args()

    def extra_ldflags(self) -> list[str]:
        return self.held.extra_ldflags()

    def libraries_args(self) -> list[str]:
        return self.held.libraries_args()

    def absolute_name(self) -> str:
        return self.held.absolute_name()

    def builder(self) -> Any:
        return self.held.builder()
