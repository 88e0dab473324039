"""Names that a program compares with a list of the device types that it allows: ``assert device in ["cpu", "cuda"]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["OF_LIST", "is_listed"]

OF_LIST = "compared with the types of devices that are allowed; add the new ones there first"
_ACCELERATORS = {"xpu", "npu", "hpu", "mlu", "musa", "sdaa"}


def is_listed(view: SourceView, target: cst.BaseExpression) -> bool:
    """Return whether this file compares a name with a list of the types of devices that are allowed."""
    return (dotted(target) or "").rpartition(".")[2] in _names_listed(view)


def _names_listed(view: SourceView) -> set[str]:
    found = set()
    for each in view.of(cst.Comparison):
        target = each.comparisons[0]
        listed = target.comparator if isinstance(target.operator, cst.In | cst.NotIn) else None
        if isinstance(listed, cst.List | cst.Tuple | cst.Set):
            names = {text_of(element.value) for element in listed.elements}
            if {"cpu", "cuda"} <= names and not names & _ACCELERATORS:
                found.add((dotted(each.left) or "").removesuffix(".type").rpartition(".")[2])
    return found
