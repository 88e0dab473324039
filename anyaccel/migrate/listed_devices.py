"""Names that a program compares with a list of the device types that it allows: ``assert device in ["cpu", "cuda"]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libcst as cst

from .device_text import ACCELERATORS
from .other_libraries import is_of_other_library
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["OF_LIST", "is_listed", "is_refused", "is_validation", "with_one_more"]

_LISTS = (cst.List, cst.Tuple, cst.Set)
OF_LIST = "compared with the types of devices that are allowed; add the new ones there first"


def is_listed(view: SourceView, target: cst.BaseExpression) -> bool:
    """Return whether this file compares a name with a list of the types of devices that are allowed."""
    return (dotted(target) or "").rpartition(".")[2] in _names_listed(view)


def is_validation(view: SourceView, node: cst.BaseExpression) -> bool:
    """Return whether a comparison only refuses names that are not in a list: ``assert device in [...]``, ``if not in: raise``.

    A tensor's device is refused before code that runs nowhere else, and so is the device of another library.
    """
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return False
    if (dotted(node.left) or ".type").endswith(".type") or is_of_other_library(view, node):
        return False
    if any(view.code(value).endswith(".type") for value in view.values_of(node.left)):
        return False
    operator, listed = node.comparisons[0].operator, node.comparisons[0].comparator
    is_inline = isinstance(listed, _LISTS) and all(text_of(element.value) for element in listed.elements)
    is_inline = is_inline and "#" not in view.code(listed)  # each is about one of the elements
    around = view.parent(node)
    if isinstance(around, cst.Assert):
        return is_inline and isinstance(operator, cst.In) and around.test is node
    if not isinstance(around, cst.If) or around.test is not node or not isinstance(operator, cst.NotIn):
        return False
    return is_inline and around.orelse is None and isinstance(_last_of(around.body), cst.Raise)


def with_one_more(listed: Any, name: cst.BaseExpression) -> Any:
    """Return a list of at least two elements with one more."""
    *others, last = listed.elements
    more = last.with_changes(value=name.deep_clone())
    return listed.with_changes(elements=[*others, last.with_changes(comma=others[-1].comma), more])


def _last_of(block: cst.BaseSuite) -> cst.CSTNode | None:
    last = block.body[-1] if block.body else None
    return last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last


def is_refused(view: SourceView, parameter: cst.Param) -> bool:
    """Return whether a function compares its parameter with a list of allowed devices that does not become longer."""
    owner = next((each for each in view.ancestors(parameter) if isinstance(each, cst.FunctionDef)), None)
    found = view.inside(owner, cst.Comparison) if owner is not None else ()
    return any(
        _compared_with_list(view, each) == parameter.name.value and not is_validation(view, each) for each in found
    )


def _compared_with_list(view: SourceView, node: cst.Comparison) -> str:
    """Return the last name on the left of a comparison with a list of the CPU and CUDA, written there or by name; else empty."""
    target = node.comparisons[0]
    if not isinstance(target.operator, cst.In | cst.NotIn):
        return ""
    for listed in _written(view, target.comparator):
        if isinstance(listed, _LISTS):
            names = {text_of(element.value) for element in listed.elements}
            if {"cpu", "cuda"} <= names and not names & ACCELERATORS:
                return (dotted(node.left) or "").removesuffix(".type").rpartition(".")[2]
    return ""


def _written(view: SourceView, listed: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the lists that an expression may be: itself, what its name holds, or a class's own: ``self.DEVICES``."""
    values = [listed, *view.values_of(listed)]
    if isinstance(listed, cst.Attribute):
        values += view.assigned.get(listed.attr.value, [])
    calls = [each for each in values if isinstance(each, cst.Call) and len(each.args) == 1]
    return [*values, *(each.args[0].value for each in calls)]  # frozenset(["cpu", "cuda"])


def _names_listed(view: SourceView) -> set[str]:
    return {_compared_with_list(view, each) for each in view.of(cst.Comparison) if not is_validation(view, each)}
