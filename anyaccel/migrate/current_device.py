"""The rule current-device: ``torch.cuda.current_device()`` is an index, which torch also accepts as a device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .device_positions import is_device_position
from .kinds import Kind, kind_by_name
from .source_view import dotted
from .stored_answers import parameter_given

if TYPE_CHECKING:
    from .plan import Plan
    from .source_view import SourceView

__all__ = ["decide_current_device"]

_CUDA = re.compile(r"cuda|gpu")
_OF_TENSOR = re.compile(r"\.get_device\(\)|\.index\b")
_COUNTS = (cst.BinaryOperation, cst.Comparison, cst.ComparisonTarget, cst.Index, cst.FormattedStringExpression)
_FSDP = ("FSDP", "FullyShardedDataParallel")
_INTEGER = re.compile(r"^(Optional\[)?int\b(?!.*\bstr\b)")
_TAKES_INDEX = frozenset({"print", "str", "int", "cuda", "range", "append", "info", "debug", "format", "broadcast"})


def decide_current_device(plan: Plan, call: cst.Call, rule: str) -> None:
    """Decide whether one call needs the index or the device name."""
    member = _wanted(plan, call)
    if member is None:
        reason = (
            "may be used as an index or as a device; use get_accelerator().current_device() or current_device_name()"
        )
        plan.report(call.func, rule, reason)
    else:
        plan.call_in_place(call.func, rule, member)


def _may_be_number(view: SourceView, call: cst.CSTNode) -> bool:
    """Return whether a value is passed to a parameter such as ``cuda_device``, which may be an index or a device."""
    argument = view.parent(call)
    while isinstance(argument, cst.IfExp):
        argument = view.parent(argument)
    owner = view.parent(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(owner, cst.Call) or not isinstance(argument, cst.Arg):
        return False
    called = (dotted(owner.func) or "").rpartition(".")[2]
    place = view.project.parameter(called, view.name(owner.func), owner.args.index(argument))
    return _CUDA.search(argument.keyword.value if argument.keyword else place) is not None


def _is_spread(view: SourceView, table: cst.CSTNode | None) -> bool:
    """Return whether a dictionary holds keyword arguments: ``f(**{…})``, or a name that is used as ``f(**name)``."""
    owner = view.parent(table) if table is not None else None
    if isinstance(owner, cst.Assign) and len(owner.targets) == 1:
        owners = [view.parent(use) for use in view.uses(owner.targets[0].target) or ()]
        return any(isinstance(each, cst.Arg) and each.star == "**" for each in owners)
    return isinstance(owner, cst.Arg) and owner.star == "**"


def _is_number(node: cst.BaseExpression) -> bool:
    return isinstance(node.expression if isinstance(node, cst.UnaryOperation) else node, cst.Integer)


def _is_output_device(view: SourceView, around: cst.CSTNode | None) -> bool:
    """Return whether a value, or a branch of a choice, is DDP's ``output_device``, which takes an index."""
    while isinstance(around, cst.IfExp):
        around = view.parent(around)
    return isinstance(around, cst.Arg) and around.keyword is not None and around.keyword.value == "output_device"


def _wanted(plan: Plan, call: cst.Call) -> str | None:
    view = plan.view
    around = view.parent(call)
    if _may_be_number(view, call):
        return None
    if _is_output_device(view, around):
        return "current_device"
    arms = (around.body, around.orelse) if isinstance(around, cst.IfExp) else ()
    if any(_is_number(each) or (dotted(each) or "").endswith(".index") for each in arms):
        return "current_device"
    comparison = view.parent(around) if isinstance(around, cst.ComparisonTarget) else around
    if isinstance(comparison, cst.Comparison) and _OF_TENSOR.search(view.code(comparison)):
        return None  # a tensor on the CPU has no index
    if isinstance(around, (*_COUNTS, cst.Element, cst.Expr)):
        return "current_device"
    if isinstance(around, cst.DictElement) and not _is_spread(view, view.parent(around)):
        return None  # who reads the dictionary may expect the index
    if isinstance(around, cst.Arg):
        owner = view.parent(around)
        assert isinstance(owner, cst.Call)  # noqa: S101  # the parent of an argument; class bases are not expected
        name = view.name(owner.func)
        called = name.rpartition(".")[2] or (dotted(owner.func) or "").rpartition(".")[2]
        method = owner.func.attr.value if isinstance(owner.func, cst.Attribute) else called
        if around.keyword is not None and around.keyword.value == "device_id" and called in _FSDP:
            return "current_device_name"
        if (
            name.startswith("torch.cuda.")
            or method in _TAKES_INDEX
            or (name == "torch.device" and owner.args[0] is not around)
        ):
            return "current_device"
        if _takes_index(view, around):
            return "current_device"
        return "current_device_name" if is_device_position(view, call).is_device else None
    if isinstance(around, cst.Return):  # the callers are unknown unless the function has the same name
        owner = next((each for each in view.ancestors(call) if isinstance(each, cst.FunctionDef)), None)
        return "current_device" if owner is not None and owner.name.value == "current_device" else None
    if isinstance(around, cst.AnnAssign) and _INTEGER.search(view.code(around.annotation.annotation)):
        return "current_device"
    if isinstance(around, cst.Assign) and len(around.targets) == 1:
        return _wanted_by_name(plan, around, call)
    return "current_device_name" if is_device_position(view, call).is_device else None


def _takes_index(view: SourceView, argument: cst.Arg) -> bool:
    """Return whether a function of this file gets an argument that it asks to be an integer, or that cannot be a text."""
    parameter = parameter_given(view, argument)
    function = view.parent(view.parent(parameter) or argument) if parameter is not None else None
    if parameter is None or function is None:
        return False
    told = view.code(parameter.annotation.annotation) if parameter.annotation is not None else ""
    is_typed = re.search(r"\bint\b", told) is not None and re.search(r"\bstr\b", told) is None
    return is_typed or re.search(rf"isinstance\({parameter.name.value}, int\)", view.code(function)) is not None


def _is_given_to_cuda(view: SourceView, use: cst.CSTNode) -> bool:
    """Return whether a function of torch.cuda takes a value, which may be an index or a device for it."""
    call = view.parent(view.parent(use) or use)
    return isinstance(call, cst.Call) and view.name(call.func).startswith("torch.cuda.")


def _is_given_by_place(view: SourceView, use: cst.CSTNode) -> bool:
    """Return whether a function of the project takes a value by its place: an index may be what it expects."""
    argument = view.parent(use)
    call = view.parent(argument) if isinstance(argument, cst.Arg) and argument.keyword is None else None
    return (
        isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and not view.name(call.func).startswith("torch.")
    )


def _wanted_by_name(plan: Plan, assign: cst.Assign, call: cst.Call) -> str | None:
    target = assign.targets[0].target
    uses = plan.view.uses(target) or []
    named = [use for use in uses if not _is_given_to_cuda(plan.view, use)]
    elements = [plan.view.parent(use) for use in named]
    are_kept = all(
        isinstance(each, cst.DictElement) and not _is_spread(plan.view, plan.view.parent(each)) for each in elements
    )
    if uses and are_kept:
        return "current_device"  # for torch.cuda, or in a dictionary whose reader may expect the index
    if uses and all(is_device_position(plan.view, use).is_device for use in named):
        is_known = all(not _is_given_by_place(plan.view, use) for use in named)
        return "current_device_name" if is_known else None
    as_text = dotted(target)
    if as_text is None:
        return None
    return "current_device" if kind_by_name(as_text) is Kind.INDEX else None
