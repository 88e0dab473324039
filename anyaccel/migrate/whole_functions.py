"""Reports rewrites in a function where CUDA stays in another place that must agree: a device's name, a scaler, a query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .device_text import index_in, is_device_literal
from .exact import state_exactly
from .site import SiteOutcome

if TYPE_CHECKING:
    from .plan import Plan, SiteDecision

__all__ = ["agree_on_counts", "function_around", "keep_functions_whole"]

_COUNT = re.compile(r"\bdevice_count\b")
_OF_DEVICE = re.compile(r"^torch\.cuda\.(get_device_capability|get_device_name|get_device_properties|mem_get_info)$")


def keep_functions_whole(plan: Plan) -> None:
    """Report counts of devices beside a device's name or query that stays CUDA's, and autocast beside such a scaler.

    ``for i in range(torch.cuda.device_count()): names.append(f"cuda:{i}")`` asks for as many names as there are devices.
    """
    _keep_asserted(plan)
    named: dict[cst.CSTNode, cst.CSTNode] = {}
    queried: dict[cst.CSTNode, cst.CSTNode] = {}
    scaled: dict[cst.CSTNode, cst.CSTNode] = {}
    for one in plan.decisions.values():
        function = function_around(plan, one.node) if one.outcome is SiteOutcome.REPORTED else None
        if function is None:
            continue
        if one.rule == "device-name" and is_device_literal(one.node) and index_in(one.node) is not None:
            named.setdefault(function, one.node)
        elif _OF_DEVICE.match(_called(plan, one.node)):
            queried.setdefault(function, one.node)
        elif one.rule == "amp" and _called(plan, one.node).endswith(".GradScaler"):
            scaled.setdefault(function, one.node)
    for one in list(plan.decisions.values()) if named or queried or scaled else ():
        function = function_around(plan, one.node) if one.outcome is SiteOutcome.REWRITTEN else None
        if function is None:
            continue
        is_count = one.rule == "runtime-call" and _COUNT.search(plan.view.code(one.node)) is not None
        if function in named and is_count:
            _keep(plan, one, named[function], "names a CUDA device")
        elif function in queried and is_count:
            _keep(plan, one, queried[function], "asks each CUDA device")
        elif function in scaled and one.rule == "amp" and _called(plan, one.node).endswith(".autocast"):
            _keep(plan, one, scaled[function], "scales gradients on CUDA")


def _keep_asserted(plan: Plan) -> None:
    """Report the names of devices in a test that asserts such a name and is reported: ``assert x.device == "cuda"``."""
    kept: dict[cst.CSTNode | None, cst.CSTNode] = {}
    for one in plan.decisions.values():
        stays = one.rule == "device-name" and one.outcome is SiteOutcome.REPORTED
        if stays and any(isinstance(each, cst.Assert) for each in plan.view.ancestors(one.node)):
            kept.setdefault(function_around(plan, one.node), one.node)
    for one in list(plan.decisions.values()) if kept else ():
        function = function_around(plan, one.node)
        is_test = isinstance(function, cst.FunctionDef) and function.name.value.startswith("test")
        if is_test and function in kept and one.rule == "device-name" and one.outcome is SiteOutcome.REWRITTEN:
            line = plan.view.position(kept[function])[0]
            plan.reconsider(one.node, f"line {line} asserts a device's name, and is reported; decide on both together")


def agree_on_counts(plan: Plan) -> None:
    """Let a CPU answer with 0 wherever a function counts devices, if it does so in one place.

    ``if torch.cuda.device_count() == 0: raise`` guards ``range(torch.cuda.device_count())`` below.
    """
    exact = {function_around(plan, each) for each in plan.exact if _COUNT.search(plan.view.code(each))}
    for one in list(plan.decisions.values()) if exact else ():
        is_count = one.outcome is SiteOutcome.REWRITTEN and plan.view.name(one.node) == "torch.cuda.device_count"
        asked = plan.view.parent(one.node) if is_count and function_around(plan, one.node) in exact - {None} else None
        if isinstance(asked, cst.Call):
            state_exactly(plan, one, asked)


def _called(plan: Plan, node: cst.CSTNode) -> str:
    return plan.view.name(node.func if isinstance(node, cst.Call) else node)


def _keep(plan: Plan, one: SiteDecision, other: cst.CSTNode, what: str) -> None:
    line = plan.view.position(other)[0]
    plan.reconsider(one.node, f"line {line} {what}, and is reported; decide on both together")


def function_around(plan: Plan, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the innermost function around a node; None at a module's top."""
    return next((each for each in plan.view.ancestors(node) if isinstance(each, cst.FunctionDef)), None)
