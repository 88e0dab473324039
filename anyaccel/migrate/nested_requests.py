"""Requests for a CUDA device in two nested tests: ``if device == "cuda":`` before ``if not torch.cuda.is_available():``.

Proof: nothing is rewritten. Another accelerator has the branches that it had, which are for a request that CUDA can meet, or not.
Nothing else in them is about CUDA, so that no half of them is ported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .choices import asks_availability
from .left_questions import leave_names, leave_questions
from .requested_devices import OF_REQUEST, is_missing, names_device
from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide_nested_requests"]

_DEVICE = r"\.cuda\(|[\"'](nccl|cuda(:\d+)?)[\"']"
_USES_CUDA = re.compile(rf"\btorch\.cuda\.(?!is_available|device_count)|{_DEVICE}")
_ABOUT_CUDA = re.compile(rf"\btorch\.cuda\.|{_DEVICE}")
_TELLS = re.compile(r"^(print|.*\.(info|debug|warn|warning|error|log|write))$")


def decide_nested_requests(plan: Plan) -> None:
    """Leave the two tests, in either order, and what depends on both."""
    for test in plan.view.of(cst.If):
        _decide_nested(plan, test)


def _decide_nested(plan: Plan, test: cst.If) -> None:
    """Leave the two tests of ``if device == "cuda": if not torch.cuda.is_available(): …``, in either order."""
    is_outer_missing = is_missing(plan, test.test)
    for asserted in plan.view.inside(test.body, cst.Assert):
        is_asked = asks_availability(plan.view, asserted.test) is True and names_device(plan, test.test)
        if is_asked and not _goes_on_with_cuda(plan, test.body, asserted):
            leave_names(plan, test.test, OF_REQUEST)
            leave_questions(plan, asserted.test, OF_REQUEST)
    for inner in plan.view.inside(test.body, cst.If):
        is_inner_missing = is_missing(plan, inner.test)
        names = [each for each in (test.test, inner.test) if names_device(plan, each)]
        is_request = (is_outer_missing or is_inner_missing) and bool(names) and _is_all_of_request(plan, test, inner)
        if is_request and _only_falls_back_or_stops(plan, inner):
            for each in (test.test, inner.test):
                leave_names(plan, each, OF_REQUEST)
            if test.test in names and is_inner_missing and any(True for _ in plan.view.inside(inner.body, cst.Raise)):
                _leave_rest(plan, test)


def _goes_on_with_cuda(plan: Plan, block: cst.BaseSuite, asserted: cst.Assert) -> bool:
    """Return whether a block for a device that was asked for sets it up, and does more than to assert that it is there."""
    others = [each for each in block.body if not plan.view.is_within(asserted, each)]
    return any(_USES_CUDA.search(plan.view.code(each)) for each in others)


def _is_all_of_request(plan: Plan, test: cst.If, inner: cst.If) -> bool:
    """Return whether nothing else in two nested tests is about CUDA; if the inner one raises, what follows may be."""
    others = [each for each in test.body.body if not plan.view.is_within(inner, each)]
    stops = any(True for _ in plan.view.inside(inner.body, cst.Raise))
    branches = [*(others if not stops else ()), *(each for each in (test.orelse, inner.orelse) if each is not None)]
    return not any(_ABOUT_CUDA.search(plan.view.code(each)) for each in branches)


def _leave_rest(plan: Plan, test: cst.If) -> None:
    """Leave what asks for more of a CUDA device that was asked for by name, and found: its index, and CUDA's count."""
    asked = {dotted(each) for each in plan.view.inside(test.test, cst.Name, cst.Attribute)}
    for compared in plan.view.inside(test.body, cst.Comparison):
        if dotted(compared.left) in asked:
            leave_names(plan, compared, OF_REQUEST)
        for each in plan.view.inside(compared, cst.Call):
            if plan.view.name(each.func) == "torch.cuda.device_count":
                leave_questions(plan, each, OF_REQUEST)


def _only_falls_back_or_stops(plan: Plan, test: cst.If) -> bool:
    """Return whether the body of an ``if`` has no other ``if`` in it, and uses no CUDA device."""
    lines = [
        each for line in test.body.body for each in (line.body if isinstance(line, cst.SimpleStatementLine) else [line])
    ]
    is_simple = all(isinstance(each, cst.Assign | cst.Raise | cst.Expr | cst.Pass | cst.Return) for each in lines)
    return is_simple and not any(_USES_CUDA.search(plan.view.code(each)) for each in lines if _is_done(each))


def _is_done(statement: cst.CSTNode) -> bool:
    """Return whether a statement does more than to stop, or to tell something."""
    call = statement.value if isinstance(statement, cst.Expr) else None
    is_told = isinstance(call, cst.Call) and _TELLS.match(dotted(call.func) or "") is not None
    return not is_told and not isinstance(statement, cst.Raise | cst.Pass)
