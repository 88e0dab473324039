"""Reports the devices beside a process group's backend that is reported, and the numbers of devices that stay CUDA's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .choices import asks_availability
from .device_text import is_device_literal
from .other_libraries import is_foreign
from .questions import asked_in
from .regions import regions_of
from .site import SiteOutcome
from .source_view import dotted
from .values_of_cuda import decided_in
from .visible_devices import is_of_new_process

if TYPE_CHECKING:
    from .plan import Plan, SiteDecision

__all__ = ["keep_beside_groups", "keep_counts"]

_NCCL, _GLOO = (re.compile(rf"[\"']{name}[\"']") for name in ("nccl", "gloo"))
_SETS = re.compile(r"\.set_device\(")


def keep_beside_groups(plan: Plan) -> None:
    """Report the choices of a device in a file of which the choice between nccl and gloo is reported.

    There, another accelerator's group is gloo's, which cannot reduce that accelerator's tensors.
    """
    kept = next((each for each in plan.decisions.values() if _chooses_backend(plan, each)), None)
    for one in list(plan.decisions.values()) if kept is not None else ():
        if one.outcome is SiteOutcome.REWRITTEN and kept is not None and _chooses_device(plan, one):
            line = plan.view.position(kept.node)[0]
            plan.reconsider(
                one.node, f"line {line} chooses the group's backend, and is reported; decide on both together"
            )


def _chooses_backend(plan: Plan, one: SiteDecision) -> bool:
    asked = asked_in(plan, one) if one.outcome is SiteOutcome.REPORTED else None
    if asked is None or not asks_availability(plan.view, asked):  # type: ignore[arg-type]
        return False
    found = regions_of(plan.view, asked)
    choice = plan.view.parent(asked)
    others = [found.other] if found.other is not None else [choice] if isinstance(choice, cst.IfExp) else []
    codes = [plan.view.code(each) for each in (*found.blocks, *found.operands, *others)]
    return any(map(_NCCL.search, codes)) and any(map(_GLOO.search, codes))


def _chooses_device(plan: Plan, one: SiteDecision) -> bool:
    asked = asked_in(plan, one)
    if asked is None or not asks_availability(plan.view, asked):  # type: ignore[arg-type]
        return one.rule == "device-choice"
    blocks = regions_of(plan.view, asked).blocks
    literals = (each for block in blocks for each in plan.view.inside(block, cst.SimpleString, cst.FormattedString))
    return any(map(is_device_literal, literals)) or any(_SETS.search(plan.view.code(block)) for block in blocks)


def keep_counts(plan: Plan) -> None:
    """Report a number of devices, and its class's questions, if a call that stays CUDA's reads the number.

    ``devices = range(torch.cuda.device_count())`` is for ``map(torch.cuda.device, devices)``, and a number that some
    function of the file gets may be for ``Trainer(gpus=…)``, or for the ``CUDA_VISIBLE_DEVICES`` of a new process.
    """
    for_process = next((each for each in plan.view.of(cst.Subscript) if is_of_new_process(plan, each)), None)
    for one in list(plan.decisions.values()):
        call = one.node if isinstance(one.node, cst.Call) else None
        if one.outcome is not SiteOutcome.REWRITTEN or call is None:
            continue
        if plan.view.name(call.func) != "torch.cuda.device_count":
            continue
        if for_process is not None:
            _keep_with(plan, call, for_process, "selects a CUDA device for another process")
        elif (taker := _takes_gpus(plan, call)) is not None:
            _keep_with(plan, call, taker, "passes it on as gpus=, which may mean CUDA's")
        elif (stays := _read_by_cudas(plan, call)) is not None:
            owner = plan.view.class_around(call)
            questions = decided_in(plan, owner) if owner is not None else []
            for each in [one, *(other for other in questions if asked_in(plan, other) is not None)]:
                if each.outcome is SiteOutcome.REWRITTEN:
                    _keep_with(plan, each.node, stays.node, "passes it on, and is reported")


def _keep_with(plan: Plan, node: cst.CSTNode, other: cst.CSTNode, reason: str) -> None:
    plan.reconsider(node, f"line {plan.view.position(other)[0]} {reason}; decide on both together")


def _takes_gpus(plan: Plan, count: cst.CSTNode) -> cst.Call | None:
    """Return the call of another library that takes a number of this name as ``gpus=``, anywhere in the file; else None."""
    assigned = plan.view.parent(count)
    name = (dotted(assigned.targets[0].target) or "") if isinstance(assigned, cst.Assign) else ""
    return next(
        (
            call
            for call in plan.view.of(cst.Call)
            for each in call.args
            if name and each.keyword is not None and each.keyword.value == "gpus" and dotted(each.value) == name
            if is_foreign(plan.view, call.func)
        ),
        None,
    )


def _read_by_cudas(plan: Plan, count: cst.CSTNode) -> SiteDecision | None:
    """Return the reported mention of torch.cuda in the statement that reads a stored range of a count; else None."""
    argument = plan.view.parent(count)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) else None
    assigned = plan.view.parent(call) if call is not None else None
    uses = plan.view.uses(assigned.targets[0].target) if isinstance(assigned, cst.Assign) else None
    for use in uses or ():
        for around in plan.view.ancestors(use):
            if isinstance(around, cst.For | cst.BaseSmallStatement | cst.BaseCompoundStatement):
                read = around.iter if isinstance(around, cst.For) else around
                found = decided_in(plan, read) if plan.view.is_within(use, read) else ()
                stays = next((each for each in found if each.outcome is SiteOutcome.REPORTED), None)
                if stays is not None:
                    return stays
                break
    return None
