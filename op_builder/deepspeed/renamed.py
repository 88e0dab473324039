"""Builders by deepspeed's names: the same ops, behind deepspeed's function names and arguments."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

from ..holding import HoldingBuilder
from ..op import resolve

if TYPE_CHECKING:
    from ..builder import OpBuilder

__all__ = ["RenamedBuilder", "module_of"]


class RenamedBuilder(HoldingBuilder):
    """Loads an op of this project as a module of deepspeed's: one library serves both, as a second would define its ops again.

    Attributes:
        MODULE: the module's class, ``"module:Class"`` in this folder.
        ALSO: the classes of further builders, whose functions the module takes.
    """

    MODULE: ClassVar[str]
    ALSO: ClassVar[tuple[type[OpBuilder], ...]] = ()

    def load(self, verbose: bool = False) -> Any:
        return self._module(self.held.load(verbose))

    def jit_load(self, verbose: bool = True) -> Any:
        return self._module(self.held.jit_load(verbose))

    def _module(self, functions: Any) -> Any:
        return module_of(self.MODULE, functions, *(builder().load() for builder in self.ALSO))


@functools.cache
def module_of(name: str, *functions: Any) -> Any:
    """Return the one object of a module's class, ``"module:Class"`` in this folder, for functions of ops."""
    return resolve(f"op_builder.deepspeed.{name}")(*functions)
