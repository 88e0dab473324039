"""Builders with deepspeed's names: the same ops, with deepspeed's function names and arguments."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

from ..holding import HoldingBuilder
from ..op import resolve

if TYPE_CHECKING:
    from ..builder import OpBuilder

__all__ = ["RenamedBuilder", "module_of"]


class RenamedBuilder(HoldingBuilder):
    """Loads an op as a deepspeed module, from the op's own library: a second library would define its torch ops again.

    Attributes:
        MODULE: the module's class, ``"module:Class"`` in this folder.
        ALSO: the classes of further builders, whose functions the module also takes.
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
    """Return the single object of a module's class, ``"module:Class"`` in this folder, for the functions of ops."""
    return resolve(f"op_builder.deepspeed.{name}")(*functions)
