"""The rule half: models that a program unconditionally keeps in float16, as inference scripts for CUDA do.

A CPU computes slowly in float16, and some operators do not support it there. Such a program starts on a CPU, but is of
no use.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .own_members import origin_of
from .site import SiteOutcome
from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide"]

RULE = "half"
_MODEL = re.compile(
    r"(^|_)(model|net|network|module|pipe|pipeline|encoder|decoder|vae|unet|generator|backbone|transformer)\d*$"
)
_OPTION = re.compile(r"half|fp16|float16|precision|dtype|amp\b|cuda|gpu|device|cpu", re.IGNORECASE)
_TO_HALF = re.compile(r"^_?((to|convert|cast|set|use)_)?(half|fp16|float16)$")
_MOVES = ("tensor-cuda", "device-name", "device-choice")
_REASON = (
    "a CPU computes in float16 slowly or not at all; check get_accelerator().is_fp16_supported(), "
    "or keep it if the program needs a GPU"
)


def decide(plan: Plan) -> None:
    """Report float16 models in modules that are ported to other devices.

    A model is not reported if a test around the call checks the precision or the device.
    """
    is_ported = any(one.outcome is SiteOutcome.REWRITTEN and one.rule in _MOVES for one in plan.decisions.values())
    for call in plan.view.of(cst.Call) if is_ported else ():
        chosen = _chosen(plan, call)
        if chosen is not None and plan.is_open(chosen) and not _is_option(plan, call):
            plan.report(chosen, RULE, _REASON)


def _chosen(plan: Plan, call: cst.Call) -> cst.CSTNode | None:
    """Return ``model.half()``, or the argument ``torch_dtype=torch.float16``; None for any other call."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "half" and not call.args:
        owner = origin_of(call.func.value)
        last = (dotted(owner) or "").rpartition(".")[2]
        is_module = last in plan.project.modules or _MODEL.search(last.lower()) is not None
        is_module |= plan.view.name(owner).startswith("torch.nn.")
        return call if is_module else None
    for argument in call.args:
        is_dtype = argument.keyword is not None and argument.keyword.value == "torch_dtype"
        if is_dtype and plan.view.name(argument.value) in ("torch.float16", "torch.half"):
            return argument
    return None


def _is_option(plan: Plan, call: cst.CSTNode) -> bool:
    """Return whether a test around a call checks the precision or the device, or it is what ``to_fp16()`` is called for."""
    for around in plan.view.ancestors(call):
        if isinstance(around, cst.FunctionDef) and _TO_HALF.search(around.name.value):
            return True
        if isinstance(around, cst.If | cst.IfExp) and _OPTION.search(plan.view.code(around.test)):
            return True
    return False
