"""Reports rewrites in a function where CUDA stays in another place that must agree: a device's name, a scaler, a query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .device_text import index_in, is_device_literal
from .exact import state_exactly
from .questions import asks_whether_any
from .site import SiteOutcome
from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan, SiteDecision

__all__ = ["agree_on_counts", "keep_functions_whole"]

_OF_DATA = "a device's name that a test stores and moves nothing to; decide which devices the test is about"
_DEFAULT_TYPE = re.compile(r"\bset_default_tensor_type\(")
_COUNT = re.compile(r"\bdevice_count\b")
_OF_DEVICE = re.compile(r"^torch\.cuda\.(get_device_capability|get_device_name|get_device_properties|mem_get_info)$")


def keep_functions_whole(plan: Plan) -> None:
    """Report in each function what must agree with something that stays CUDA's there.

    ``for i in range(torch.cuda.device_count()): names.append(f"cuda:{i}")`` asks for as many names as there are devices.
    """
    _keep_asserted(plan)
    _keep_data_of_tests(plan)
    for what, stays, depends in _PAIRS:
        kept: dict[cst.CSTNode, cst.CSTNode] = {}
        for one in plan.decisions.values():
            function = plan.view.function_around(one.node) if one.outcome is SiteOutcome.REPORTED else None
            if function is not None and stays(plan, one):
                kept.setdefault(function, one.node)
        for one in list(plan.decisions.values()) if kept else ():
            function = plan.view.function_around(one.node) if one.outcome is SiteOutcome.REWRITTEN else None
            if function in kept and depends(plan, one):
                line = plan.view.position(kept[function])[0]
                for each in (one, *_beside(plan, one)):
                    plan.reconsider(each.node, f"line {line} {what}, and is reported; decide on both together")


def _beside(plan: Plan, one: SiteDecision) -> list[SiteDecision]:
    """Return the other rewritten questions of the same condition or choice, of which no half is to be ported."""
    inner, outer = one.node, plan.view.parent(one.node)
    while isinstance(outer, cst.BaseExpression | cst.ComparisonTarget | cst.Arg):
        inner, outer = outer, plan.view.parent(outer)
    return [
        each
        for each in plan.decisions.values()
        if each is not one and each.outcome is SiteOutcome.REWRITTEN and each.rule == "runtime-call"
        if isinstance(inner, cst.BooleanOperation | cst.IfExp) and plan.view.is_within(each.node, inner)
    ]


def _is_numbered(plan: Plan, one: SiteDecision) -> bool:
    return one.rule == "device-name" and is_device_literal(one.node) and index_in(one.node) is not None


def _is_compared_name(plan: Plan, one: SiteDecision) -> bool:
    return _is_numbered(plan, one) and "compared" in one.reason


def _is_query(plan: Plan, one: SiteDecision) -> bool:
    return _OF_DEVICE.match(_called(plan, one.node)) is not None


def _is_count(plan: Plan, one: SiteDecision) -> bool:
    return one.rule == "runtime-call" and _COUNT.search(plan.view.code(one.node)) is not None


def _is_scaler(plan: Plan, one: SiteDecision) -> bool:
    return one.rule == "amp" and _called(plan, one.node).endswith(".GradScaler")


def _is_autocast(plan: Plan, one: SiteDecision) -> bool:
    return one.rule == "amp" and _called(plan, one.node).endswith(".autocast")


def _sets_default_type(plan: Plan, one: SiteDecision) -> bool:
    kinds = cst.If | cst.SimpleStatementLine
    around = next((each for each in plan.view.ancestors(one.node) if isinstance(each, kinds)), None)
    return around is not None and _DEFAULT_TYPE.search(plan.view.code(around)) is not None


def _is_choice(plan: Plan, one: SiteDecision) -> bool:
    return one.rule == "device-choice"


def _is_autocasts_dtype(plan: Plan, one: SiteDecision) -> bool:
    return _called(plan, one.node) == "torch.get_autocast_gpu_dtype"


def _asks_autocast(plan: Plan, one: SiteDecision) -> bool:
    return _called(plan, one.node) == "torch.is_autocast_enabled"


def _is_compared_figure(plan: Plan, one: SiteDecision) -> bool:
    return one.rule == "memory" and "compares" in one.reason


def _is_figure(plan: Plan, one: SiteDecision) -> bool:
    return one.rule == "memory" or _called(plan, one.node) == "torch.cuda.get_device_properties"


_PAIRS = (
    ("names a CUDA device", _is_numbered, _is_count),
    ("names a CUDA device", _is_compared_name, _is_numbered),
    ("asks each CUDA device", _is_query, _is_count),
    ("scales gradients on CUDA", _is_scaler, _is_autocast),
    ("sets the default type of tensors", _sets_default_type, _is_choice),
    ("compares CUDA's memory", _is_compared_figure, _is_figure),
    ("asks for autocast's dtype on CUDA", _is_autocasts_dtype, _asks_autocast),
)


def _keep_asserted(plan: Plan) -> None:
    """Report the names of devices in a test that asserts such a name and is reported: ``assert x.device == "cuda"``."""
    kept: dict[cst.CSTNode | None, cst.CSTNode] = {}
    for one in plan.decisions.values():
        stays = one.rule == "device-name" and one.outcome is SiteOutcome.REPORTED
        if stays and any(isinstance(each, cst.Assert) for each in plan.view.ancestors(one.node)):
            kept.setdefault(plan.view.function_around(one.node), one.node)
    for one in list(plan.decisions.values()) if kept else ():
        function = plan.view.function_around(one.node)
        is_name = one.rule == "device-name" and one.outcome is SiteOutcome.REWRITTEN
        if is_name and function in kept and _is_test(plan, one.node):
            line = plan.view.position(kept[function])[0]
            plan.reconsider(one.node, f"line {line} asserts a device's name, and is reported; decide on both together")


def _keep_data_of_tests(plan: Plan) -> None:
    """Report the numbered devices that a test stores in an object: ``trainer.device = torch.device("cuda:3")`` moves nothing."""
    for one in list(plan.decisions.values()):
        statement = next((each for each in plan.view.ancestors(one.node) if isinstance(each, cst.Assign)), None)
        target = statement.targets[0].target if statement is not None else None
        is_stored = isinstance(target, cst.Attribute) and dotted(target.value) != "self"
        if is_stored and one.outcome is SiteOutcome.REWRITTEN and _is_numbered(plan, one) and _is_test(plan, one.node):
            plan.reconsider(one.node, _OF_DATA)


def _is_test(plan: Plan, node: cst.CSTNode) -> bool:
    function = plan.view.function_around(node)
    return isinstance(function, cst.FunctionDef) and function.name.value.startswith("test")


def agree_on_counts(plan: Plan) -> None:
    """Let a CPU find 0 devices in a guard of a function in which another number of devices is 0 there.

    ``if torch.cuda.device_count() == 0: raise`` guards ``range(torch.cuda.device_count())`` below.
    """
    exact = {plan.view.function_around(each) for each in plan.exact if _COUNT.search(plan.view.code(each))}
    for one in list(plan.decisions.values()) if exact else ():
        is_count = one.outcome is SiteOutcome.REWRITTEN and plan.view.name(one.node) == "torch.cuda.device_count"
        asked = (
            plan.view.parent(one.node) if is_count and plan.view.function_around(one.node) in exact - {None} else None
        )
        around = plan.view.parent(asked) if isinstance(asked, cst.Call) else None
        is_guard = isinstance(around, cst.Comparison) and isinstance(around.comparisons[0].comparator, cst.Integer)
        if is_guard and asked is not None and asks_whether_any(plan, asked):
            state_exactly(plan, one, asked)


def _called(plan: Plan, node: cst.CSTNode) -> str:
    return plan.view.name(node.func if isinstance(node, cst.Call) else node)
