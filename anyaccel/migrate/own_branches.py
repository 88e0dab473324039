"""Branches for CUDA that stay: a branch that calls a CUDA kernel, next to code that does the same on every device.

``if x.is_cuda: return median_filter_cuda(x)`` is correct on every machine if the program continues for other tensors: a
CUDA kernel accepts no other tensor. A branch does not qualify if the only alternative is to raise: someone has to port
the kernel, so it is reported. It does if the error says that CUDA is needed, and no kernel is called. A branch that
contains a rewritten site does not qualify either, because it does more than call the kernel.

The same applies to a branch in which nothing that names ``torch.cuda`` has a counterpart on other devices:
``ipc_collect()``, the size of the L2 cache, the sync debug mode, and a compute capability that chooses no precision.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .site import SiteOutcome
from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan, SiteDecision

__all__ = ["leave_own_branch"]

_KERNEL = re.compile(
    r"(^|\.)(\w+_cuda|cuda_\w+_kernel|\w+_cuda_ext|\w+_cuda_binding|triton|triton_ops|tl|flash_attn|cupy|cupy_\w+|cupyx|"
    r"pynvml|nvml\w+|apex|amp_C|bnb|bitsandbytes)(\.|$)"
)
_PRECISION = re.compile(r"bfloat16|bf16|fp16|float16|fp8|half|dtype|precision", re.IGNORECASE)
_NO_KERNEL = re.compile(r"(^|[._])(to|is|has|use|move|check|get|set|init)_(the_)?cuda$")
_PORTED = re.compile(r"\bget_accelerator\(\)|\btorch\.accelerator\.|\baccelerator_\w+\(")
_OF_COLLECTION = re.compile(r"_cuda\.(append|add|update|extend|insert|pop|remove|get|items|keys|values)$")


def leave_own_branch(plan: Plan, question: SiteDecision, asked: cst.CSTNode, regions: list[cst.CSTNode]) -> bool:
    """Leave a question and the code that depends on it if that code is specific to CUDA; return whether it is.

    Args:
        plan: the module's plan.
        question: the decision on the question.
        asked: the expression whose value is the answer.
        regions: the code that depends on the answer.
    """
    sites = [one for region in regions for one in plan.decisions.values() if plan.view.is_within(one.node, region)]
    is_ported = any(_PORTED.search(plan.view.code(region)) for region in regions)  # by an earlier run
    if not regions or is_ported or any(one.outcome is SiteOutcome.REWRITTEN for one in sites):
        return False
    reported = [one for one in sites if one.outcome is SiteOutcome.REPORTED]
    kernel = next((name for region in regions if (name := _kernel_in(plan, region))), "")
    is_of_precision = any(_PRECISION.search(plan.view.code(region)) for region in regions)
    if not all(one.is_own or _is_capability(plan, one, is_of_precision) for one in reported):
        return False
    if not (kernel or reported) or (not _goes_on(plan, asked) and (kernel or not _says_cuda(plan, asked))):
        return False
    line = plan.view.position(asked)[0]
    for one in reported:
        plan.reconsider(one.node, f"specific to CUDA, and runs only if line {line} finds CUDA", SiteOutcome.LEFT)
    what = f"the CUDA kernel {kernel}" if kernel else "code that only CUDA has"
    plan.reconsider(question.node, f"checks for CUDA before {what}, next to code for other devices", SiteOutcome.LEFT)
    return True


def _is_capability(plan: Plan, one: SiteDecision, is_of_precision: bool) -> bool:
    """Return whether a report is about a compute capability that chooses no precision, for which there is a query."""
    return plan.view.name(one.node) == "torch.cuda.get_device_capability" and not is_of_precision


def _kernel_in(plan: Plan, region: cst.CSTNode) -> str:
    for call in plan.view.inside(region, cst.Call):
        imported = plan.view.name(call.func)
        name = imported or dotted(call.func) or ""
        if not imported and _OF_COLLECTION.search(name):
            continue
        if not name.startswith("torch.") and _KERNEL.search(name) and not _NO_KERNEL.search(name):
            return dotted(call.func) or name
    return ""


def _goes_on(plan: Plan, asked: cst.CSTNode) -> bool:
    """Return whether the program does anything other than raise if the condition is false."""
    inner: cst.CSTNode = asked
    for around in plan.view.ancestors(asked):
        if isinstance(around, cst.Assert):
            return False
        if isinstance(around, cst.If) and around.test is inner:
            branches = [around.body, around.orelse.body if isinstance(around.orelse, cst.Else) else None]
            return not any(branch is not None and _only_raises(branch) for branch in branches)
        if isinstance(around, cst.BaseSuite):
            break
        inner = around
    return True


def _says_cuda(plan: Plan, asked: cst.CSTNode) -> bool:
    """Return whether what stops without CUDA says so: what follows is CUDA's own, and there is nothing to port."""
    stop = next((each for each in plan.view.ancestors(asked) if isinstance(each, cst.If | cst.Assert)), None)
    told = stop.msg if isinstance(stop, cst.Assert) else stop.body if isinstance(stop, cst.If) else None
    return told is not None and "CUDA" in plan.view.code(told)


def _only_raises(block: cst.BaseSuite) -> bool:
    last = block.body[-1] if block.body else None
    return isinstance(last, cst.SimpleStatementLine) and any(isinstance(each, cst.Raise) for each in last.body)
