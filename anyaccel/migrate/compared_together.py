"""Reports comparisons with CUDA's name that others of the same device, which are reported, leave half ported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .comparisons import LISTED
from .listed_devices import is_validation
from .questions import asked_in
from .refused_devices import keep_moved, keep_refused
from .site import SiteOutcome
from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan, SiteDecision

__all__ = ["is_kept_question", "keep_comparisons", "sides_of"]

_STAYS = ("depends-on-cuda", "depends-on-function", "device-comparison", "kernel-guard")


def keep_comparisons(plan: Plan) -> None:
    """Report the rewritten comparisons and choices of which another of the same device is reported."""
    _keep_attributes(plan)
    _keep_chosen(plan)
    keep_refused(plan)
    keep_moved(plan)
    _keep_lists(plan)


def _keep_chosen(plan: Plan) -> None:
    """Report a choice of a device that its function compares with a list of devices: ``elif device in ["cuda", "gpu"]``."""
    listed = {}
    for one in plan.decisions.values():
        if one.rule == "device-name" and one.outcome is SiteOutcome.REPORTED and isinstance(one.node, cst.Comparison):
            target = one.node.comparisons[0]
            if isinstance(target.operator, cst.In | cst.NotIn):
                listed[plan.view.function_around(one.node), dotted(one.node.left)] = plan.view.position(one.node)[0]
    for one in list(plan.decisions.values()) if listed else ():
        if one.rule == "device-choice" and one.outcome is SiteOutcome.REWRITTEN:
            around = plan.view.parent(one.node)
            name = dotted(around.targets[0].target) if isinstance(around, cst.Assign) else None
            line = listed.get((plan.view.function_around(one.node), name)) if name else None
            if line is not None:
                plan.reconsider(one.node, f"line {line} lists the devices that {name} may be; decide on both together")


def _keep_lists(plan: Plan) -> None:
    """Report a list of allowed devices that would become longer, if a comparison of what it allows is reported.

    ``if request.device not in {"cpu", "cuda"}: raise`` before ``if device == "cuda":`` must not let other devices through.
    """
    kept = [
        one for one in plan.decisions.values() if is_kept_question(plan, one) and not _says_what_others_do(plan, one)
    ]
    for one in list(plan.decisions.values()) if kept else ():
        if one.outcome is not SiteOutcome.REWRITTEN or not is_validation(plan.view, one.node):  # type: ignore[arg-type]
            continue
        other = next((each for each in kept if _asks_for_same(plan, one.node, each.node)), None)
        if other is not None:
            line = plan.view.position(other.node)[0]
            plan.reconsider(one.node, f"line {line} compares it with CUDA, and is reported; decide on both together")


def _says_what_others_do(plan: Plan, one: SiteDecision) -> bool:
    """Return whether a comparison is the end of ``if wants_flash and device != "cuda": wants_flash = False``."""
    compared, around = one.node, plan.view.parent(one.node)
    is_not = isinstance(compared, cst.Comparison) and isinstance(compared.comparisons[0].operator, cst.NotEqual)
    return is_not and isinstance(around, cst.BooleanOperation) and isinstance(around.operator, cst.And)


def _asks_for_same(plan: Plan, listed: cst.CSTNode, compared: cst.CSTNode) -> bool:
    """Return whether two comparisons are of one attribute, or of one name or attribute in one function."""
    name = dotted(sides_of(listed)[0]) or ""
    is_near = plan.view.function_around(listed) is plan.view.function_around(compared)
    for other in filter(None, map(dotted, sides_of(compared))):
        if (other == name and "." in name) or (is_near and other.rpartition(".")[2] == name.rpartition(".")[2]):
            return True
    return False


def _keep_attributes(plan: Plan) -> None:
    """Report the comparisons of ``self.device`` in a class that compares ``device`` in a reported one, or vice versa."""
    compared: dict[tuple[cst.CSTNode | None, str], list[SiteDecision]] = {}
    for one in plan.decisions.values():
        owner = plan.view.class_around(one.node) if one.rule == "device-name" else None
        sides = sides_of(one.node)
        for name in filter(None, map(dotted, sides)) if owner is not None else ():
            compared.setdefault((owner, name.removeprefix("self.")), []).append(one)
    for (_, name), ones in compared.items():
        kept = next((one for one in ones if is_kept_question(plan, one)), None)
        for one in ones:
            if kept is not None and plan.decisions[one.node].outcome is SiteOutcome.REWRITTEN:
                line = plan.view.position(kept.node)[0]
                plan.reconsider(one.node, f"line {line} asks for the same {name}; decide on both together")


def is_kept_question(plan: Plan, one: SiteDecision) -> bool:
    """Return whether a decision reports a question that stays CUDA's because of what depends on it, or what it compares."""
    if one.outcome is not SiteOutcome.REPORTED:
        return False
    if asked_in(plan, one) is not None:
        return one.question in _STAYS or (one.rule == "is-cuda" and one.question == "nothing-rewritten")
    is_prefix = isinstance(one.node, cst.Call) and (dotted(one.node.func) or "").endswith(".startswith")
    return one.rule == "device-name" and one.reason != LISTED and (is_prefix or isinstance(one.node, cst.Comparison))


def sides_of(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """Return what a comparison compares, or the text of ``device.startswith("cuda")``; empty for any other node."""
    if isinstance(node, cst.Comparison):
        return [node.left, *(each.comparator for each in node.comparisons)]
    return [node.func.value] if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) else []
