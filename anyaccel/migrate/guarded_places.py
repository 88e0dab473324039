"""Places that a CPU does not reach, because a condition around them has found CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .choices import asks_availability

if TYPE_CHECKING:
    from collections.abc import Callable

    from .plan import Plan

__all__ = ["HOLDS", "is_guarded"]

HOLDS: dict[type, Callable[[int, int], bool]] = {
    cst.GreaterThan: int.__gt__, cst.GreaterThanEqual: int.__ge__, cst.LessThan: int.__lt__,
    cst.LessThanEqual: int.__le__, cst.Equal: int.__eq__, cst.NotEqual: int.__ne__,
}  # fmt: skip
"""What each comparison says of two numbers."""


def is_guarded(plan: Plan, call: cst.CSTNode) -> bool:
    """Return whether an expression is evaluated only if a condition around it has found CUDA.

    The question in that condition must be exact then, if it is rewritten at all.
    """
    inner = call
    for around in plan.view.ancestors(call):
        found: list[cst.CSTNode] = []
        if isinstance(around, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            return False
        if isinstance(around, cst.If | cst.IfExp) and around.body is inner:
            found = _found_cuda(plan, around.test)
        elif isinstance(around, cst.If | cst.IfExp) and around.orelse is inner:
            if asks_availability(plan.view, test := around.test) is False and isinstance(test, cst.UnaryOperation):
                found = [test.expression]
        elif isinstance(around, cst.BooleanOperation) and isinstance(around.operator, cst.And):
            found = _found_cuda(plan, around.left) if around.right is inner else []
        if found:
            plan.must_be_exact.update(found)
            return True
        inner = around
    return False


def _found_cuda(plan: Plan, test: cst.BaseExpression) -> list[cst.CSTNode]:
    """Return the questions in a condition that is true only if there is CUDA: ``a and torch.cuda.is_available()``."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return [*_found_cuda(plan, test.left), *_found_cuda(plan, test.right)]
    called = plan.view.name(test.func) if isinstance(test, cst.Call) else None
    is_of_tensor = isinstance(test, cst.Attribute) and test.attr.value == "is_cuda"
    if (
        is_of_tensor
        or plan.view.name(test) == "torch.cuda._initialized"
        or called in ("torch.cuda.is_available", "torch.cuda.is_initialized")
    ):
        return [test]
    if not isinstance(test, cst.Comparison):
        return []
    target = test.comparisons[0]
    if test in plan.questions and isinstance(target.operator, cst.Equal):
        return [test]
    if not isinstance(count := test.left, cst.Call):
        return []
    holds = HOLDS.get(type(target.operator))
    if plan.view.name(count.func) != "torch.cuda.device_count" or not isinstance(target.comparator, cst.Integer):
        return []
    return [] if holds is None or holds(0, int(target.comparator.value, 0)) else [count, test]
