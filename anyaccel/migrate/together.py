"""Reports rewrites that would leave half of what belongs together: a class, a comparison of names, a guarded block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .device_text import is_device_literal
from .site import SiteOutcome
from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["keep_together"]

_CLASSES = ("torch.cuda.Event", "torch.cuda.Stream")


def keep_together(plan: Plan) -> None:
    """Report the rewritten sites whose counterpart is reported."""
    _keep_classes(plan)
    _keep_compared(plan)
    _keep_guards(plan)


def _keep_classes(plan: Plan) -> None:
    """Report every construction of ``torch.cuda.Event`` or ``Stream`` if another use of that class is reported.

    ``type(event) == torch.cuda.Event`` is false for the accelerator's events.
    """
    reported = [one for one in plan.decisions.values() if one.outcome is SiteOutcome.REPORTED]
    for name in {name for one in reported if (name := plan.view.name(one.node)) in _CLASSES}:
        line = min(plan.view.position(one.node)[0] for one in reported if plan.view.name(one.node) == name)
        for one in list(plan.decisions.values()):
            made = one.node.func if isinstance(one.node, cst.Call) else one.node
            if one.outcome is SiteOutcome.REWRITTEN and plan.view.name(made) == name:
                plan.reconsider(one.node, f"{name} is used as a class at line {line}; change both together")


def _keep_compared(plan: Plan) -> None:
    """Report the names that are stored and compared with a reported one: ``"cuda:" + str(k) != self.last_device``."""
    for one in list(plan.decisions.values()):
        around = plan.view.parent(one.node)
        comparison = plan.view.parent(around) if isinstance(around, cst.ComparisonTarget) else around
        is_name = one.outcome is SiteOutcome.REPORTED and is_device_literal(one.node)
        if not is_name or not isinstance(comparison, cst.Comparison):
            continue
        line = plan.view.position(one.node)[0]
        for side in (comparison.left, *(each.comparator for each in comparison.comparisons)):
            for value in plan.view.assigned.get(dotted(side) or "", ()):
                _undo(plan, value, f"compared with a CUDA device's name at line {line}; change both together")


def _keep_guards(plan: Plan) -> None:
    """Report ``with torch.cuda.device(i):`` before code of which all that names CUDA stays."""
    for block in plan.view.of(cst.With):
        inside = [one for one in plan.decisions.values() if plan.view.is_within(one.node, block.body)]
        stays = next((one for one in inside if one.outcome is SiteOutcome.REPORTED), None)
        if stays is None or any(one.outcome is SiteOutcome.REWRITTEN for one in inside):
            continue
        line = plan.view.position(stays.node)[0]
        for item in block.items:
            if isinstance(item.item, cst.Call) and plan.view.name(item.item.func) == "torch.cuda.device":
                _undo(plan, item, f"the code that it is for stays specific to CUDA (line {line}); change both together")


def _undo(plan: Plan, where: cst.CSTNode, reason: str) -> None:
    for node, one in list(plan.decisions.items()):
        if one.outcome is SiteOutcome.REWRITTEN and plan.view.is_within(node, where):
            plan.reconsider(node, reason)
