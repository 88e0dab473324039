"""Reports questions that others, which are reported, would leave as one half: in a function, a class, a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .choices import asks_availability
from .compared_together import is_kept_question
from .questions import asked_in
from .regions import chain_around, regions_of
from .settled_questions import OF_OTHERS
from .site import SiteOutcome
from .source_view import dotted
from .stored_answers import answers_of
from .values_of_cuda import rewritten_in

if TYPE_CHECKING:
    from .plan import Plan, SiteDecision

__all__ = ["keep_questions"]


def keep_questions(plan: Plan) -> None:
    """Report the rewritten questions of which another one of the same function, class, module or call is reported."""
    _keep_same_questions(plan)
    _keep_arguments(plan)
    _keep_stored_questions(plan)
    _leave_chains(plan)


def _leave_chains(plan: Plan) -> None:
    """Leave the questions for one of several accelerators in a chain of ``if`` and ``elif`` in which another one is left."""
    for kept in [one for one in plan.decisions.values() if one.reason == OF_OTHERS]:
        for one in rewritten_in(plan, [each.test for each in chain_around(plan.view, kept.node)]):
            if isinstance(one.node, cst.BooleanOperation):
                plan.reconsider(one.node, OF_OTHERS, SiteOutcome.LEFT)


def _keep_same_questions(plan: Plan) -> None:
    """Report the other questions of a function of which one stays CUDA's: together they say where its code runs.

    ``if not x.is_cuda: x = log_softmax(x)`` prepares ``x`` for the kernel that ``if x.is_cuda:`` chooses below. Questions
    that a CPU may answer with yes guard nothing but what every device has, and are not meant.
    """
    rewritten = [one for one in plan.decisions.values() if one.node in plan.exact]
    kept: dict[cst.CSTNode, cst.CSTNode] = {}
    for one in plan.decisions.values():
        if is_kept_question(plan, one) and (scope := _scope_of(plan, one)) is not None:
            kept.setdefault(scope, one.node)
    for one in rewritten if kept else ():
        scope = _scope_of(plan, one)
        if one.outcome is SiteOutcome.REWRITTEN and scope in kept:
            line = plan.view.position(kept[scope])[0]
            place = f"line {line} of this function" if isinstance(scope, cst.FunctionDef) else f"line {line}"
            plan.reconsider(one.node, f"{place} is reported, too; decide on both together")


def _scope_of(plan: Plan, one: SiteDecision) -> cst.CSTNode | None:
    """Return the function around a question, or else the class or module, unless that only stores its answer."""
    function = plan.view.function_around(one.node)
    if function is not None:
        return function
    asked = asked_in(plan, one)
    is_stored = asked is not None and any(answers_of(plan.view, regions_of(plan.view, asked)))
    return None if is_stored else plan.view.class_around(one.node) or plan.view.module


def _keep_arguments(plan: Plan) -> None:
    """Report the questions among the arguments of a call of which another one, or a choice of a device, is reported."""
    for kept in [one for one in plan.decisions.values() if one.outcome is SiteOutcome.REPORTED]:
        if asked_in(plan, kept) is None and kept.rule != "device-choice":
            continue
        argument = next(
            (each for each in plan.view.ancestors(kept.node) if isinstance(each, cst.Arg | cst.BaseSuite)), None
        )
        call = plan.view.parent(argument) if isinstance(argument, cst.Arg) else None
        for one in list(plan.decisions.values()) if isinstance(call, cst.Call) else ():
            is_other = one.node in plan.exact and any(plan.view.is_within(one.node, each) for each in call.args)  # type: ignore[union-attr]
            if is_other and one.outcome is SiteOutcome.REWRITTEN:
                line = plan.view.position(kept.node)[0]
                plan.reconsider(
                    one.node, f"line {line} is an argument of the same call, and is reported; decide on both together"
                )


def _keep_stored_questions(plan: Plan) -> None:
    """Report the questions whether CUDA is there in a class in which one that ``self.has_cuda`` holds is reported."""
    asked = {}
    for one in plan.decisions.values():
        question = asked_in(plan, one) if one.outcome is not SiteOutcome.LEFT else None
        if isinstance(question, cst.Call) and asks_availability(plan.view, question):
            asked[one.node] = (one, plan.view.class_around(question), plan.view.parent(question))
    for one, owner, stored in list(asked.values()):
        name = dotted(stored.targets[0].target) if isinstance(stored, cst.Assign) else None
        is_kept = one.outcome is SiteOutcome.REPORTED and (name or "").startswith("self.")
        for other, around, _ in asked.values() if is_kept and owner is not None else ():
            if around is owner and plan.decisions[other.node].outcome is SiteOutcome.REWRITTEN:
                line = plan.view.position(one.node)[0]
                plan.reconsider(other.node, f"line {line} keeps the same question; decide on both together")
