"""The activities of torch's profiler: CUDA's becomes that of this device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted, text_of
from .targets import expression

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide_activity"]

_PREFIX = "torch.profiler.ProfilerActivity."
_ALL = "torch.profiler.supported_activities()"


def decide_activity(plan: Plan, node: cst.CSTNode) -> bool:
    """Rewrite ``ProfilerActivity.CUDA`` in a list of both, or appended to a list of the CPU's; return whether it is."""
    listed, appended = _activities(plan, node), _appended(plan, node)
    plan.needs_torch |= listed is not None or appended is not None
    if listed is not None:
        plan.rewrite(listed, "env", lambda _: expression(_ALL))
        plan.claim(*listed.children)
    elif appended is not None:
        owner = node.value  # type: ignore[attr-defined]  # ProfilerActivity
        new = f"{{x}}.extend({_ALL} - set([{{owner}}.CPU]))"
        plan.rewrite(appended, "env", lambda updated: expression(new, x=updated.func.value, owner=owner))
        plan.claim(*appended.args)
    return listed is not None or appended is not None


def _appended(plan: Plan, node: cst.CSTNode) -> cst.Call | None:
    """Return ``activities.append(ProfilerActivity.CUDA)``, if only a profiler gets that list, which has the CPU's already.

    Proof: on CUDA, ``supported_activities()`` are these two. On another device it returns that device's activity instead of
    CUDA's, and on a CPU the one that the list has. That one is left out, as torch 2.13 refuses an activity that is given twice.
    """
    argument = plan.view.parent(node)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) else None
    method = call.func if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) else None
    if (
        not isinstance(node, cst.Attribute)
        or method is None
        or method.attr.value != "append"
        or not isinstance(method.value, cst.Name)
    ):
        return None
    values = plan.view.values_of(method.value)
    targets = {plan.view.parent(value) for value in values}
    target = next(iter(targets)) if len(targets) == 1 else None
    uses = plan.view.uses(target.targets[0].target) if isinstance(target, cst.Assign) else None
    has_cpus = all(
        isinstance(value, cst.List) and any(plan.view.name(each.value) == f"{_PREFIX}CPU" for each in value.elements)
        for value in values
    )
    is_given = uses is not None and all(_is_of_profiler(plan, use) for use in uses)
    return call if values and has_cpus and is_given and isinstance(call, cst.Call) else None


def _is_of_profiler(plan: Plan, use: cst.CSTNode) -> bool:
    """Return whether a list is given to a profiler, or an activity is appended to it."""
    around = plan.view.parent(use)
    if isinstance(around, cst.Attribute):
        return around.attr.value == "append"
    return isinstance(around, cst.Arg) and around.keyword is not None and dotted(around.keyword) == "activities"


def _activities(plan: Plan, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the list ``[ProfilerActivity.CPU, ProfilerActivity.CUDA]`` passed to a profiler; None for any other list.

    On CUDA, ``supported_activities()`` returns these two. On another device it returns that device's activity instead
    of CUDA's.
    """
    element = plan.view.parent(node)
    listed = plan.view.parent(element) if isinstance(element, cst.Element) else None
    argument = plan.view.parent(listed) if isinstance(listed, cst.List | cst.Tuple | cst.Set) else None
    if isinstance(argument, cst.DictElement) and text_of(argument.key) == "activities":
        names = {plan.view.name(each.value) for each in getattr(listed, "elements", ())}
        return listed if names == {f"torch.profiler.ProfilerActivity.{each}" for each in ("CPU", "CUDA")} else None
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(listed, cst.List | cst.Tuple | cst.Set) or not isinstance(call, cst.Call):
        return None
    names = {plan.view.name(each.value).rpartition(".")[2] for each in listed.elements}
    is_profile = plan.view.name(call.func) == "torch.profiler.profile"
    is_given = isinstance(argument, cst.Arg) and argument.keyword is not None and argument.keyword.value == "activities"
    return listed if names == {"CPU", "CUDA"} and is_profile and is_given else None
