"""Leaves questions about CUDA, and the names of CUDA in them, where they are correct on every machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .choices import asks_availability
from .device_text import is_device_literal

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["is_of_availability", "leave_names", "leave_questions", "leave_unless_stored"]

_CUDA_TEXT = re.compile(r"[\"']cuda")


def leave_names(plan: Plan, where: cst.CSTNode, reason: str) -> None:
    """Leave the questions in a condition, its comparisons with CUDA, and the names of devices in it."""
    leave_questions(plan, where, reason)
    for asked in plan.view.inside(where, cst.Comparison, cst.Call):
        function = asked.func if isinstance(asked, cst.Call) else None
        is_prefix = isinstance(function, cst.Attribute) and function.attr.value == "startswith"
        is_test = (is_prefix or isinstance(asked, cst.Comparison)) and _CUDA_TEXT.search(plan.view.code(asked))
        if is_test and plan.is_open(asked):
            plan.leave(asked, "device-name", reason)
            plan.claim(*asked.children)


def leave_unless_stored(plan: Plan, where: cst.CSTNode, reason: str) -> None:
    """Leave the questions in a condition, unless it reads one that is stored, and may decide other things as well."""
    names = plan.view.inside(where, cst.Name)
    if not any(is_of_availability(plan, value) for name in names for value in plan.view.values_of(name)):
        leave_names(plan, where, reason)


def leave_questions(plan: Plan, where: cst.CSTNode, reason: str) -> None:
    """Leave every use of ``torch.cuda`` in a condition, and the question that a name in it stands for."""
    for name in plan.view.inside(where, cst.Name):
        for value in plan.view.values_of(name):
            if is_of_availability(plan, value):
                _leave_calls(plan, value, reason)
    _leave_calls(plan, where, reason)


def _leave_calls(plan: Plan, where: cst.CSTNode, reason: str) -> None:
    for node in plan.view.inside(where, cst.Attribute, cst.Name):
        around = plan.view.parent(node)
        is_longest = not (isinstance(around, cst.Attribute) and around.value is node)
        if any(map(is_device_literal, plan.view.ancestors(node))):
            continue  # f"cuda:{torch.cuda.current_device()}" names a device, whatever the condition asks
        if is_longest and plan.view.name(node).startswith("torch.cuda.") and plan.is_open(node):
            plan.leave(node, "runtime-call", reason)


def is_of_availability(plan: Plan, value: cst.BaseExpression) -> bool:
    """Return whether a value is true only if CUDA is available: the question itself, or ``a and`` the question."""
    if isinstance(value, cst.BooleanOperation) and isinstance(value.operator, cst.And):
        return any(is_of_availability(plan, each) for each in (value.left, value.right))
    return asks_availability(plan.view, value) is True
