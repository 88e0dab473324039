"""Tests that are skipped without CUDA, and say that it is CUDA that they need: they stay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide"]

_SKIPS = ("skipIf", "skipUnless", "skipif", "skip", "skipTest", "SkipTest")
_SAYS_CUDA = re.compile(r"cuda|\bgpus?\b|\bcpu\b|nvidia|nccl", re.IGNORECASE)
_REASON = "a test that is skipped without CUDA, which its message says; it is skipped there still"


def decide(plan: Plan) -> None:
    """Leave the questions of skips whose message, or the comment beside them, names CUDA, GPUs or the CPU."""
    for call in plan.view.of(cst.Call):
        if (dotted(call.func) or "").rpartition(".")[2] not in _SKIPS:
            continue
        asked, told = call.args[:1], call.args[1:]
        if told and _SAYS_CUDA.search(" ".join(plan.view.code(each) for each in told)):
            _leave_questions(plan, asked[0])
    for test in plan.view.of(cst.If):
        if _is_skip(plan, test) or _is_marked(plan, test):
            _leave_questions(plan, test.test)


def _is_skip(plan: Plan, test: cst.If) -> bool:
    """Return whether all that a test does is to skip, for want of CUDA."""
    if test.orelse is not None or len(test.body.body) != 1:
        return False
    line = test.body.body[0]
    statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else line
    call = statement.value if isinstance(statement, cst.Expr) else getattr(statement, "exc", None)
    is_skip = isinstance(call, cst.Call) and (dotted(call.func) or "").rpartition(".")[2] in _SKIPS
    return is_skip and _SAYS_CUDA.search(plan.view.code(statement)) is not None


def _is_marked(plan: Plan, test: cst.If) -> bool:
    """Return whether a comment beside a test says that it is skipped on a CPU."""
    header = getattr(test.body, "header", None)
    comment = header.comment.value if header is not None and header.comment is not None else ""
    return "skip" in comment.lower() and _SAYS_CUDA.search(comment) is not None


def _leave_questions(plan: Plan, where: cst.CSTNode) -> None:
    for node, name in plan.view.imported.items():
        around = plan.view.parent(node)
        is_longest = not (isinstance(around, cst.Attribute) and around.value is node)
        if is_longest and name.startswith("torch.cuda.") and plan.view.is_within(node, where) and plan.is_open(node):
            plan.leave(node, "runtime-call", _REASON)
