"""The rule device-ids: the device arguments of DDP, which must be None for a module on the CPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .nodes import parts
from .source_view import dotted, text_of
from .targets import expression

if TYPE_CHECKING:
    from .plan import Plan
    from .source_view import SourceView

__all__ = ["RULE", "decide", "is_none_elsewhere"]

RULE = "device-ids"
_DDP = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")


def decide(plan: Plan) -> None:
    """Decide on the device arguments of DDP, of ``barrier()`` and of ``init_process_group()``."""
    for node in plan.view.of(cst.Call):
        if plan.view.name(node.func) in _DDP or _is_of_own_ddp(plan.view, node):
            for place, argument in enumerate(node.args):
                _decide_device_ids(plan, argument, place)
        elif plan.view.name(node.func) in ("torch.distributed.barrier", "torch.distributed.init_process_group"):
            for argument in node.args:
                _decide_device_ids(plan, argument, -1)


def _is_of_own_ddp(view: SourceView, call: cst.Call) -> bool:
    """Return whether a call with ``device_ids`` instantiates a subclass of DDP: of the migrated files, or by its name."""
    name = view.name(call.func).rpartition(".")[2] or dotted(call.func)
    is_ddp = name in view.project.ddps or (name or "").endswith("DistributedDataParallel")
    return is_ddp and any(each.keyword and each.keyword.value == "device_ids" for each in call.args)


def _decide_device_ids(plan: Plan, argument: cst.Arg, place: int) -> None:
    """Make DDP's device arguments None on a CPU: DDP accepts them only for a module on a device with an index."""
    keyword = argument.keyword.value if argument.keyword else {1: "device_ids", 2: "output_device"}.get(place)
    value = argument.value
    if argument.star:
        _decide_options(plan, argument)
        return
    given = [value] if isinstance(value, cst.IfExp) else plan.view.values_of(value)
    is_done = bool(given) and all(isinstance(each, cst.IfExp) and is_none_elsewhere(each) for each in given)
    is_open = plan.is_open(argument)
    if keyword not in ("device_ids", "output_device", "device_id") or is_done or dotted(value) == "None" or not is_open:
        return
    _none_on_cpu(plan, argument)


def _none_on_cpu(plan: Plan, owner: cst.Arg | cst.DictElement) -> None:
    """Make the value of an argument or a dictionary element None on a CPU; other rules rewrite the value itself."""
    name = plan.device_name()
    if name is not None:
        choice = 'None if {name} == "cpu" else {value}'
        plan.rewrite(
            owner,
            RULE,
            lambda updated: updated.with_changes(value=expression(choice, name=name, value=updated.value)),
        )


def _decide_options(plan: Plan, argument: cst.Arg) -> None:
    """Decide on ``DDP(model, **options)``, where the options are a dictionary of this module that only DDP uses.

    Other options are reported if they may contain ``device_ids``.
    """
    values = plan.view.values_of(argument.value)
    options = values[0] if len(values) == 1 else None
    assigned = plan.view.parent(options) if options is not None else None
    uses = plan.view.uses(assigned.targets[0].target) if isinstance(assigned, cst.Assign) else None
    if isinstance(options, cst.Dict) and uses and all(_is_of_ddp(plan, use) for use in uses):
        for element in options.elements:
            is_ids = isinstance(element, cst.DictElement) and text_of(element.key) in ("device_ids", "output_device")
            if is_ids and not isinstance(element.value, cst.IfExp) and isinstance(element, cst.DictElement):
                _none_on_cpu(plan, element)
    elif (
        isinstance(options, cst.Call)
        and dotted(options.func) == "dict"
        and uses
        and all(_is_of_ddp(plan, use) for use in uses)
    ):
        for each in options.args:
            if each.keyword and each.keyword.value in ("device_ids", "output_device"):
                _decide_device_ids(plan, each, -1)
    elif _names_ids(plan.view, argument):
        return  # device_ids is passed explicitly, so the options cannot contain it
    elif "device_ids" in plan.view.source.replace("device_ids=", ""):
        plan.report(
            argument, RULE, "may contain device_ids, which must be None on a CPU; write them as separate arguments"
        )


def _names_ids(view: SourceView, options: cst.Arg) -> bool:
    call = view.parent(options)
    return isinstance(call, cst.Call) and any(each.keyword and each.keyword.value == "device_ids" for each in call.args)


def is_none_elsewhere(value: cst.IfExp) -> bool:
    """Return whether a conditional expression on the kind of device already passes None to DDP on a CPU."""
    test = value.test
    names = {each.value for each in _names_in(test)} | {text_of(each) or "" for each in _texts_in(test)}
    is_choice = any(isinstance(branch, cst.Name) and branch.value == "None" for branch in (value.body, value.orelse))
    is_count = any(isinstance(each, cst.Integer) or dotted(each) == "None" for each in _sides(test))
    is_named = any(re.search(r"cpu|cuda|gpu|device|nccl", name, re.IGNORECASE) for name in names)
    return is_choice and is_named and not is_count


def _sides(test: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the sides of a comparison; empty for any other test."""
    if not isinstance(test, cst.Comparison):
        return []
    return [test.left, *(each.comparator for each in test.comparisons)]


def _names_in(node: cst.CSTNode) -> list[cst.Name]:
    return [
        *([node] if isinstance(node, cst.Name) else []),
        *(each for part in parts(node) for each in _names_in(part)),
    ]


def _texts_in(node: cst.CSTNode) -> list[cst.SimpleString]:
    own = [node] if isinstance(node, cst.SimpleString) else []
    return [*own, *(each for part in parts(node) for each in _texts_in(part))]


def _is_of_ddp(plan: Plan, use: cst.CSTNode) -> bool:
    argument = plan.view.parent(use)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) and argument.star == "**" else None
    return isinstance(call, cst.Call) and plan.view.name(call.func) in _DDP
