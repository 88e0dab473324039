"""Follows the answer to a question that is stored or passed on: every use of it must be a test that is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .answers import Objection
from .neutral import is_given_to_neutral, is_option
from .regions import answer_name, parameter_given
from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan
    from .regions import Regions

__all__ = ["of_value"]

_ELSEWHERE = Objection(
    "answer-goes-elsewhere",
    "its answer is used where the tool cannot follow it; decide what other devices answer there",
)


def of_value(plan: Plan, found: Regions, named: list[Regions]) -> Objection | None:
    """Return an objection if an answer that is used as a value goes anywhere but into the tests in ``named``."""
    value = found.value
    if isinstance(value, cst.Expr) or is_given_to_neutral(plan.view, value):
        return None
    tested = [each.asked for each in named]
    if isinstance(value, cst.Arg) and _is_passed_to_tests(plan, value, tested):
        return None
    reads = _reads(plan, value)
    is_tested = reads is not None and all(_is_tested(plan, each, tested) for each in reads)
    return None if is_tested else _ELSEWHERE


def _reads(plan: Plan, value: cst.CSTNode | None) -> list[cst.CSTNode] | None:
    """Return every read of the name that an answer is stored under; None if other files may read it, or it has none."""
    name = answer_name(plan.view, value).rpartition(".")
    if not name[2]:
        return None
    target = value.targets[0].target if isinstance(value, cst.Assign) else getattr(value, "target", None)
    if isinstance(target, cst.Name):
        is_global = not any(isinstance(each, cst.FunctionDef | cst.Lambda) for each in plan.view.ancestors(target))
        is_shared = is_global and name[2] in plan.project.brought
        uses = None if is_shared else plan.view.uses(target)
        return None if is_global and not uses else uses
    if plan.project.attributes.get(name[2], 0) > 1 or (isinstance(target, cst.Attribute) and not _is_plain(target)):
        return None
    found = [each for each in plan.view.of(cst.Attribute) if each.attr.value == name[2]]
    return [each for each in found if not _is_other(plan, each)] or None


def _is_other(plan: Plan, node: cst.Attribute) -> bool:
    """Return whether an attribute of the answer's name is assigned, or is torch's: ``torch.cuda``, ``x.cuda()``."""
    around = plan.view.parent(node)
    if plan.view.name(node):
        return True
    return isinstance(around, cst.AssignTarget) or (isinstance(around, cst.Call) and around.func is node)


def _is_plain(target: cst.Attribute) -> bool:
    """Return whether a target is ``self.name`` or ``args.name``, and not, say, the attribute of a module."""
    root = (dotted(target.value) or "").rpartition(".")[2].lower()
    return root in ("self", "args", "opt", "opts", "options", "config", "cfg", "hparams", "params", "flags", "parser")


def _is_tested(plan: Plan, read: cst.CSTNode, tested: list[cst.CSTNode]) -> bool:
    if any(plan.view.is_within(read, each) for each in tested) or is_option(plan.view, read):
        return True
    return _is_passed_to_tests(plan, plan.view.parent(read), tested)


def _is_passed_to_tests(plan: Plan, argument: cst.CSTNode | None, tested: list[cst.CSTNode]) -> bool:
    """Return whether an argument goes to a function of this file that only tests the parameter."""
    parameter = parameter_given(plan.view, argument)
    reads = plan.view.uses(parameter.name) if parameter is not None else None
    return reads is not None and all(
        any(plan.view.is_within(read, each) for each in tested) or is_option(plan.view, read) for read in reads
    )
