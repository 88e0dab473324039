"""Names that a program compares with a list of the device types that it allows: ``assert device in ["cpu", "cuda"]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libcst as cst

from .device_text import ACCELERATORS
from .other_libraries import is_of_other_library
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .plan import Plan
    from .source_view import SourceView

__all__ = ["OF_LIST", "decide_lists", "is_listed", "is_refused", "is_validation", "with_one_more"]

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
    operator, listed = node.comparisons[0].operator, node.comparisons[0].comparator
    values = view.values_of(listed)
    if len(values) == 1 and isinstance(values[0], _LISTS) and _is_list_of_allowed(view, values[0]):
        listed = values[0]
    is_inline = isinstance(listed, cst.List | cst.Tuple | cst.Set) and all(text_of(e.value) for e in listed.elements)
    around = view.parent(node)
    if isinstance(around, cst.Assert):
        return is_inline and isinstance(operator, cst.In) and around.test is node
    if not isinstance(around, cst.If) or around.test is not node or not isinstance(operator, cst.NotIn):
        return False
    return is_inline and around.orelse is None and isinstance(_last_of(around.body), cst.Raise)


def decide_lists(plan: Plan) -> None:
    """Add the accelerator's name to a list by which other devices are refused, and which has a name.

    Proof: as for a list that is written in the comparison.
    """
    name = plan.device_name()
    if name is None:
        return
    for listed in plan.view.of(*_LISTS):
        if not isinstance(plan.view.parent(listed), cst.Assign) or not _is_list_of_allowed(plan.view, listed):
            continue
        compared = [each for each in plan.view.of(cst.Comparison) if listed in _values(plan.view, each)]
        own = [each.value for each in listed.elements]
        if any("device_name()" in plan.view.code(each) for each in own):
            plan.leave(listed, "device-name", "lists the accelerator's name beside CUDA's")
            plan.claim(*own)
        elif all(is_validation(plan.view, each) for each in compared):
            plan.rewrite(listed, "device-name", lambda updated: with_one_more(updated, name), tuple(own))


def _values(view: SourceView, compared: cst.Comparison) -> list[cst.BaseExpression]:
    return view.values_of(compared.comparisons[0].comparator)


def with_one_more(listed: Any, name: cst.BaseExpression) -> Any:
    """Return a list of at least two elements with one more."""
    *others, last = listed.elements
    more = last.with_changes(value=name.deep_clone())
    return listed.with_changes(elements=[*others, last.with_changes(comma=others[-1].comma), more])


def _is_list_of_allowed(view: SourceView, listed: cst.List | cst.Tuple | cst.Set) -> bool:
    """Return whether a list has a name by which devices are compared with it, and which is shown, and nothing else.

    ``valid = ["cpu", "cuda"]``, ``if device not in valid: raise ValueError(f"… must be one of {valid}")``
    """
    around = view.parent(listed)
    names = {text_of(each.value) or ("" if "device_name()" in view.code(each) else None) for each in listed.elements}
    if not isinstance(around, cst.Assign) or not {"cpu", "cuda"} <= names or None in names or names & ACCELERATORS:
        return False
    targets = [each.target for each in around.targets]
    uses = [each for each in view.uses(targets[0]) or [] if each not in targets] if len(targets) == 1 else []
    compared = [each for each in uses if isinstance(view.parent(each), cst.ComparisonTarget)]
    shown = [each for each in uses if isinstance(view.parent(each), cst.FormattedStringExpression)]
    return bool(compared) and len(compared) + len(shown) == len(uses)


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
    for listed in (target.comparator, *view.values_of(target.comparator)):
        if isinstance(listed, cst.List | cst.Tuple | cst.Set):
            names = {text_of(element.value) for element in listed.elements}
            if {"cpu", "cuda"} <= names and not names & ACCELERATORS:
                return (dotted(node.left) or "").removesuffix(".type").rpartition(".")[2]
    return ""


def _names_listed(view: SourceView) -> set[str]:
    return {_compared_with_list(view, each) for each in view.of(cst.Comparison) if not is_validation(view, each)}
