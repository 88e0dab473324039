"""Names from ``torch.cuda`` that something else in the module gives another meaning."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .nodes import dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .scopes import Binding

    _Ancestors = Callable[[cst.CSTNode], Iterator[cst.CSTNode]]

__all__ = ["has_two_meanings"]

_OF_CUDA = re.compile(r"^torch\.cuda\b")


def has_two_meanings(ancestors: _Ancestors, binding: Binding, every: list[Binding]) -> bool:
    """Return whether a name from ``from torch.cuda import …`` or ``from torch import cuda`` has another meaning, too.

    What the import's failure sets does not count.

    Args:
        ancestors: returns those of a node, innermost first.
        binding: the import of the name.
        every: all that binds the name in its scope.
    """
    statement = binding.node
    module = statement.module if isinstance(statement, cst.ImportFrom) and not statement.relative else None
    is_module = module is not None and dotted(module) == "torch" and binding.name == "cuda"
    if statement is None or module is None or not (is_module or _OF_CUDA.match(dotted(module) or "")):
        return False
    around = [each for each in ancestors(statement) if isinstance(each, cst.Try)]
    handlers = {handler for each in around for handler in each.handlers}
    others = [each.node for each in every if each.node is not None and not each.is_import]
    if is_module and any(isinstance(each, cst.Param) for each in others):
        return True  # a caller may give another module, as a test does
    return any(handlers.isdisjoint(ancestors(each)) for each in others if not _is_no_function(ancestors, each))


def _is_no_function(ancestors: _Ancestors, bound: cst.CSTNode) -> bool:
    """Return whether what binds a name is a parameter, or gives it the value None, which nobody calls."""
    around = [each for each, _ in zip(ancestors(bound), range(2), strict=False)]
    statement = around[-1] if around else None
    value = statement.value if isinstance(statement, cst.Assign) else None
    return isinstance(bound, cst.Param) or (isinstance(value, cst.Name) and value.value == "None")
