"""Names that a program compares with a list of the device types that it allows: ``assert device in ["cpu", "cuda"]``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import libcst as cst

from .device_text import ACCELERATORS
from .other_libraries import is_of_other_library
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["OF_LIST", "is_listed", "is_refused", "is_validation", "with_one_more"]

_LISTS = (cst.List, cst.Tuple, cst.Set)
_DEPTH = 5
_COMPARED = re.compile(
    r"(?:(?:torch\.device|str)\()?([\w.]+?)\)?(?:\.type|\.(?:lower|strip)\(\)|\.split\([^()]*\)\[0\])*"
)
"""The name in ``torch.device(device).type`` or ``device.split(":")[0].lower()``."""
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
    compared = _COMPARED.fullmatch(view.code(node.left))
    if compared is None or not isinstance(target.operator, cst.In | cst.NotIn):
        return ""
    values = [] if isinstance(target.comparator, cst.Call) else view.values_of(target.comparator)
    lists = [_names_in(view, each, 1) for each in values] or [_names_in(view, target.comparator)]
    is_of_cuda = any({"cpu", "cuda"} <= names and not names & ACCELERATORS for names in lists)
    return compared[1].rpartition(".")[2] if is_of_cuda else ""


def _names_in(view: SourceView, listed: cst.BaseExpression, depth: int = 0) -> set[str]:
    """Return the texts of a list, written there, ``[*KINDS, "meta"]``, by name, or a class's own: ``self.DEVICES``."""
    if depth > _DEPTH:
        return set()
    if isinstance(listed, cst.SimpleString):
        return {text_of(listed) or ""} if depth else set()  # `"cuda" in "cuda:0"` is no list
    if isinstance(listed, _LISTS):
        parts = [each.value for each in listed.elements]
    elif isinstance(listed, cst.BinaryOperation):
        parts = [listed.left, listed.right]
    elif isinstance(listed, cst.Call):
        parts = [each.value for each in listed.args[:1]]  # frozenset(["cpu", "cuda"])
    else:
        parts = view.values_of(listed)
        parts = parts or (view.assigned.get(listed.attr.value, []) if isinstance(listed, cst.Attribute) else [])
    return {name for each in parts for name in _names_in(view, each, depth + 1)}


def _names_listed(view: SourceView) -> set[str]:
    return {_compared_with_list(view, each) for each in view.of(cst.Comparison) if not is_validation(view, each)}
