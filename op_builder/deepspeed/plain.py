"""Builders with deepspeed's names whose modules need no compiler, only torch operators and the operating system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ..builder import OpBuilder
from ..engine.errors import OpError
from .renamed import module_of

if TYPE_CHECKING:
    import torch

    from ..engine.build import Recipe

__all__ = ["PlainBuilder", "SmallFloatsBuilder"]


class PlainBuilder(OpBuilder):
    """Returns a deepspeed module that needs no compilation.

    Attributes:
        MODULE: the module's class, ``"module:Class"`` in this folder.
    """

    MODULE: ClassVar[str]

    def load(self, verbose: bool = False) -> Any:
        return module_of(self.MODULE)

    def jit_load(self, verbose: bool = True) -> Any:
        return module_of(self.MODULE)

    def incompatibility(self) -> str:
        return ""

    def is_built(self) -> bool:
        return True

    def recipes(self, target: str) -> list[Recipe]:
        return []

    def builder(self) -> Any:
        """Raise an error: setuptools has nothing to build.

        Raises:
            OpError: always.
        """
        msg = (
            f"making an extension of the op '{self.name}' failed: the op has no native code. "
            f"Fix: leave it out; load() works without a build."
        )
        raise OpError(msg)


class SmallFloatsBuilder(PlainBuilder):
    """Gives deepspeed's small floats, and what its class tells of them without loading anything."""

    @staticmethod
    def get_default_quant_dtype() -> torch.dtype:
        """Return the dtype of codes."""
        import torch

        return torch.uint8

    @staticmethod
    def get_quant_range(q_bits: int | None = None) -> float:
        """Return the largest number of a format.

        Args:
            q_bits: 4, 6, 8 or 12; deepspeed has no answer for 4.

        Raises:
            NotImplementedError: when there is no such format.
        """
        from .floats import largest

        return largest(q_bits or 0)
