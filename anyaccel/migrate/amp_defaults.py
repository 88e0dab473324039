"""Parameters whose default is the device of mixed precision, and of nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .source_view import SourceView

__all__ = ["OF_AMP", "only_enables_amp"]

_AMP = re.compile(r"(^|\.)(autocast|GradScaler)$")
OF_AMP = "only enables mixed precision, which did nothing on a CPU; pass enabled= as well"


def only_enables_amp(view: SourceView, parameter: cst.Param) -> bool:
    """Return whether a parameter is only the device of autocast or a scaler, directly or as ``self.x`` of its class."""
    uses: list[cst.CSTNode] = []
    for use in view.uses(parameter.name) or ():
        uses += _reads_of_attribute(view, use) or [use]
    arguments = [view.parent(use) for use in uses]
    calls = [view.parent(each) for each in arguments if isinstance(each, cst.Arg)]
    return len(calls) == len(uses) > 0 and all(
        isinstance(each, cst.Call) and _AMP.search(dotted(each.func) or "") for each in calls
    )


def _reads_of_attribute(view: SourceView, value: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """Return where a class reads ``self.x`` if ``self.x = value`` is what a value is used for; else nothing."""
    assigned = view.parent(value)
    target = assigned.targets[0].target if isinstance(assigned, cst.Assign) and assigned.value is value else None
    owner = view.class_around(value)
    if not isinstance(target, cst.Attribute) or owner is None:
        return ()
    name = dotted(target)
    return [
        each
        for each in view.inside(owner, cst.Attribute)
        if dotted(each) == name and not isinstance(view.parent(each), cst.AssignTarget)
    ]
