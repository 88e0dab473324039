"""Options that take a device, ``--device`` with its choices, rows of tables of devices, and what stands for the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .nodes import dotted, text_of

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["choices_of", "is_default_of_option", "is_for_no_device", "names_of_row"]

_KEYS = ("name", "kind", "type", "label", "id")


def choices_of(call: cst.Call) -> set[str]:
    """Return the texts among an option's choices. Argparse does not check its own default."""
    given = next((each.value for each in call.args if each.keyword and each.keyword.value == "choices"), None)
    listed = given.elements if isinstance(given, cst.List | cst.Tuple | cst.Set) else ()
    return {text_of(each.value) or "" for each in listed}


def is_default_of_option(view: SourceView, element: cst.DictElement) -> bool:
    """Return whether a value is the default of an option for a device: ``{"name": "--rl_device", "default": "cuda:0"}``."""
    beside = getattr(view.parent(element), "elements", ())
    named = {text_of(each.key): text_of(each.value) or "" for each in beside if isinstance(each, cst.DictElement)}
    name = named.get("name", "")
    return text_of(element.key) == "default" and "choices" not in named and name.startswith("-") and "device" in name


def names_of_row(call: cst.Call) -> set[str]:
    """Return what a row of a table is called."""
    return {text_of(each.value) or "" for each in call.args if each.keyword and each.keyword.value in _KEYS}


def is_for_no_device(view: SourceView, choice: cst.IfExp, branch: cst.CSTNode) -> bool:
    """Return whether a branch of a choice is for a machine, or a request, with the CPU alone.

    ``kind if kind != "cpu" else "cuda"``, and ``found.type if found is not None else "cuda"`` of the current accelerator.
    """
    test = choice.test
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
    is_equal = isinstance(operator, cst.Equal | cst.Is)
    if not isinstance(operator, cst.Equal | cst.NotEqual | cst.Is | cst.IsNot) or is_equal != (branch is choice.body):
        return False
    is_none = dotted(other) == "None" and any(
        isinstance(each, cst.Call) and view.name(each.func) == "torch.accelerator.current_accelerator"
        for each in view.values_of(test.left)
    )
    return is_none or text_of(other) == "cpu"
