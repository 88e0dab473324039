"""Decides on ``torch.cuda.is_bf16_supported()``, which is True on a CPU after a rewrite and was False before.

Where the other choice is float16, a CPU is better served by bfloat16, and the question is rewritten. Where it is float32,
unknown, or a further question about CUDA, a CPU would lose precision: a CPU answers no there, or the question is reported. A
check that stops the program is rewritten.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .choices import asks_availability
from .exact import state_exactly
from .guarded_places import is_guarded
from .other_ways import NAMES_HALF
from .regions import regions_of
from .site import SiteOutcome
from .source_view import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .plan import Plan

__all__ = ["keep_other_precisions"]

_BFLOAT16 = re.compile(r"bfloat16|bf16")
_FLOAT32 = re.compile(r"float32|fp32|torch\.float\b|[\"']32")
_OF_PRECISION = "chooses bfloat16 where a CPU used another precision than float16; decide what other devices use"


def keep_other_precisions(plan: Plan) -> None:
    """Report the rewritten questions for bfloat16 whose other choice is not float16."""
    for node, one in list(plan.decisions.items()):
        if one.outcome is SiteOutcome.REWRITTEN and plan.view.name(node) == "torch.cuda.is_bf16_supported":
            call = plan.view.parent(node)
            if not isinstance(call, cst.Call) or regions_of(plan.view, call).is_entry:
                continue
            if not _names_half(plan, call) or _asks_again(plan, call):
                if is_guarded(plan, call):
                    continue  # a CPU does not come here
                is_answered = plan.decided.answer_to("precision") != ""
                if is_answered or not state_exactly(plan, one, call):
                    plan.reconsider(node, _OF_PRECISION, question="precision")


def _asks_again(plan: Plan, asked: cst.CSTNode) -> bool:
    """Return whether CUDA is asked for again if the answer is no, so that a CPU took a third choice before."""
    for around in plan.view.ancestors(asked):
        if isinstance(around, cst.If | cst.IfExp):
            further = around.orelse
            tests = plan.view.inside(further, cst.If, cst.IfExp) if further is not None else ()
            return plan.view.is_within(asked, around.test) and any(_asks_for_cuda(plan, each.test) for each in tests)
        if isinstance(around, cst.BaseStatement):
            break
    return False


def _asks_for_cuda(plan: Plan, test: cst.BaseExpression) -> bool:
    compared = [
        side
        for each in plan.view.inside(test, cst.Comparison)
        for side in (each.left, *(target.comparator for target in each.comparisons))
    ]
    calls = plan.view.inside(test, cst.Call)
    is_compared = any((text_of(side) or "").startswith("cuda") for side in compared)
    return is_compared or any(asks_availability(plan.view, each) for each in calls)


def _names_half(plan: Plan, asked: cst.CSTNode) -> bool:
    """Return whether float16 is named in the statement of a question, where its answer is read, or before it."""
    further = regions_of(plan.view, asked).other
    while isinstance(further, cst.If):
        if further.orelse is None:
            return False  # what is chosen before may be what a CPU used
        further = further.orelse
    for other in _values(regions_of(plan.view, asked).other):
        chosen = plan.view.code(other)
        if _FLOAT32.search(chosen) and not NAMES_HALF.search(_BFLOAT16.sub("", chosen)):
            return False
    statement = _statement(plan, asked)
    nodes = [statement]
    for each in plan.view.inside(statement, cst.Assign):
        for target in each.targets:
            nodes += plan.view.values_of(target.target)
            nodes += [_statement(plan, use) for use in plan.view.uses(target.target) or ()]
    return any(NAMES_HALF.search(_BFLOAT16.sub("", plan.view.code(each))) for each in nodes)


def _values(other: cst.CSTNode | None) -> Iterator[cst.CSTNode]:
    """Yield what a choice may come to: each branch of a choice within it."""
    if isinstance(other, cst.If | cst.IfExp):
        yield from _values(other.body)
        yield from _values(other.orelse)
    elif other is not None:
        yield other


def _statement(plan: Plan, node: cst.CSTNode) -> cst.CSTNode:
    """Return the statement around an expression; for one in the test of an ``if``, the whole chain."""
    found: cst.CSTNode = node
    for around in plan.view.ancestors(node):
        if isinstance(around, cst.BaseSuite | cst.Module):
            break
        found = around
    return found
