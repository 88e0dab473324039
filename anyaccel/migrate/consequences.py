"""Undoes rewrites that the code depending on them makes unsafe; runs after every rule that rewrites code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .answer_uses import OF_KERNELS, of_constants, of_value
from .answers import Objection
from .bfloat16 import keep_other_precisions
from .build_scripts import keep_build_scripts
from .comments import keep_what_comments_say
from .comparisons import LISTED
from .cuda_guards import advice_on, guard_around, is_program, of_guards_named, writes_kernels
from .data_parallel import DATA_PARALLEL
from .dependents import (
    asks_for_bfloat16,
    condition_around,
    is_known_code,
    of_what_depends,
)
from .device_text import is_device_literal
from .docstrings import correct_docstrings
from .exact import state_exactly
from .functions_that_stay import ENTRIES, MAINS
from .guards import asks_for_kernels, keep_guarded_devices, keep_names_of_cuda
from .import_time import keep_import_time
from .listed_devices import is_validation
from .messages import correct_messages
from .neutral import is_neutral
from .other_files import of_other_file
from .other_ways import of_kept_answer, of_other_way, stops_for_precision
from .own_branches import leave_own_branch
from .probes import keep_probes
from .questions import asked_in, is_count_tested
from .refused_devices import keep_expected, keep_unlisted
from .regions import case_around, chain_around, regions_of
from .same_on_cpu import of_cpu
from .scripts import keep_scripts
from .site import SiteOutcome
from .stored_answers import regions_of_name
from .together import keep_together
from .told_counts import tell_counts
from .values_of_cuda import decided_in, rewritten_in
from .whole_functions import agree_on_counts, keep_functions_whole

if TYPE_CHECKING:
    from .plan import Plan, SiteDecision
    from .regions import Regions

__all__ = ["settle"]


_OF_SEVERAL = "stops without one of several accelerators, which it asks for by name"
_OF_TENSOR = ("is-cuda", "typed-tensor", "device-name")
_OF_GUARDS = ("cuda-guard", "kernel-guard")
_OF_CONDITION = Objection(
    "changes-cpu", "stops under a further condition, or after other code; decide what other devices do", is_of_cpu=True
)


def settle(plan: Plan) -> None:
    """Report the CUDA checks that guard CUDA-only code, and leave the code that depends on them unchanged."""
    keep_scripts(plan)
    keep_probes(plan)
    keep_import_time(plan)
    keep_what_comments_say(plan)
    keep_other_precisions(plan)
    for _ in range(2 * len(_open_questions(plan)) + 1):  # another check may depend on the one just changed
        _keep_whole(plan)
        keep_together(plan)
        if not [one for one in _open_questions(plan) if _object(plan, one)]:
            break
    _keep_whole(plan)
    keep_together(plan)
    before = plan.changes
    keep_guarded_devices(plan)
    keep_names_of_cuda(plan)
    keep_functions_whole(plan)
    for _ in range(len(_open_questions(plan)) + 1):
        if plan.changes == before:  # else a name under a question has been reported since
            break
        before = plan.changes
        for one in _open_questions(plan):
            _object(plan, one)
    agree_on_counts(plan)
    tell_counts(plan)
    keep_build_scripts(plan)
    correct_docstrings(plan)
    correct_messages(plan)


def _open_questions(plan: Plan) -> list[SiteDecision]:
    return [one for one in plan.decisions.values() if one.outcome is SiteOutcome.REWRITTEN and asked_in(plan, one)]


def _keep_whole(plan: Plan) -> None:
    """Undo rewrites that would leave code partly ported.

    These are rewrites in code that depends on a reported comparison, and in the other parts of a reported string,
    ``if`` chain or condition.
    """
    for decision in list(plan.decisions.values()):
        if decision.outcome is not SiteOutcome.REPORTED:
            continue
        line = plan.view.position(decision.node)[0]
        if isinstance(decision.node, cst.Comparison) and is_validation(plan.view, decision.node):
            keep_unlisted(plan, decision.node, line)
        elif isinstance(decision.node, cst.Comparison):
            keep_expected(plan, decision.node, line)
        compared = _comparison_of(plan, decision)
        if compared is not None:
            for one in rewritten_in(plan, regions_of(plan.view, compared).all):
                what = "NCCL" if decision.rule == "comm-backend" else "a CUDA device"
                reason = f"runs only if line {line} finds {what}; decide on that line, then run again"
                plan.reconsider(one.node, reason, SiteOutcome.LEFT)
        case = case_around(plan.view, decision.node)
        for one in rewritten_in(plan, [case.body]) if case is not None else ():
            reason = f"runs only if line {line} matches CUDA's name; decide on that line, then run again"
            plan.reconsider(one.node, reason, SiteOutcome.LEFT)
        is_text = isinstance(decision.node, cst.FormattedString) and decision.rule != "env"
        if is_text or is_device_literal(decision.node):
            for one in rewritten_in(plan, [decision.node]):
                plan.reconsider(one.node, "part of a string that is reported")
        for one in rewritten_in(plan, _other_tests(plan, decision)):
            if one.rule == decision.rule and asked_in(plan, one) is not None:
                plan.reconsider(
                    one.node, f"the same if statement has a reported test at line {line}; decide on both together"
                )
        condition = condition_around(plan, decision.node)
        for one in rewritten_in(plan, [condition]) if condition is not None else ():
            if one.rule in ("runtime-call", "is-cuda") or one.node in plan.questions:
                plan.reconsider(
                    one.node, f"the other half of this condition is reported at line {line}; decide on both together"
                )


def _comparison_of(plan: Plan, decision: SiteDecision) -> cst.CSTNode | None:
    """Return the reported comparison with a CUDA device or with NCCL; None if a decision is about anything else."""
    node = decision.node
    if decision.rule not in ("device-name", "comm-backend") or decision.reason == LISTED:
        return None
    if isinstance(node, cst.Comparison) and is_validation(plan.view, node):
        return None
    if isinstance(node, cst.Comparison | cst.Call) and decision.rule == "device-name" and not is_device_literal(node):
        return node
    target = plan.view.parent(node)
    around = plan.view.parent(target) if isinstance(target, cst.ComparisonTarget) else target
    return around if isinstance(around, cst.Comparison) else None


def _other_tests(plan: Plan, decision: SiteDecision) -> list[cst.CSTNode]:
    """Return the other tests of an ``if``/``elif`` chain in which the decision is about a check for CUDA."""
    if decision.rule != "runtime-call" or asked_in(plan, decision) is None:
        return []
    chain = chain_around(plan.view, decision.node)
    return [each.test for each in chain if not plan.view.is_within(decision.node, each.test)]


def _next_that_stays(plan: Plan, asked: cst.CSTNode) -> int:
    """Return the line of a reported site of CUDA's own that runs after a guard, in the same block; 0 if there is none."""
    inner = asked
    for around in plan.view.ancestors(asked):
        if isinstance(around, cst.IndentedBlock | cst.Module):
            place = next(number for number, each in enumerate(around.body) if each is inner)
            for each in around.body[place + 1 :]:
                if isinstance(each, cst.FunctionDef | cst.ClassDef):
                    continue
                for one in decided_in(plan, each):
                    is_own = one.outcome is SiteOutcome.REPORTED and one.rule == "runtime-call"
                    if is_own and asked_in(plan, one) is None and not _is_asked_for(plan, one.node, each):
                        return plan.view.position(one.node)[0]
            return 0
        inner = around
    return 0


def _is_asked_for(plan: Plan, node: cst.CSTNode, statement: cst.CSTNode) -> bool:
    """Return whether a site runs only under a condition, or is in a function that may not be called."""
    conditions = (cst.If, cst.IfExp, cst.Try, cst.FunctionDef, cst.Lambda)
    inside = (each for each in plan.view.ancestors(node) if plan.view.is_within(each, statement))
    return any(isinstance(each, conditions) and not _is_in_test(plan, node, each) for each in inside)


def _is_in_test(plan: Plan, node: cst.CSTNode, around: cst.CSTNode) -> bool:
    return isinstance(around, cst.If | cst.IfExp) and plan.view.is_within(node, around.test)


def _object(plan: Plan, question: SiteDecision) -> bool:
    """Change the rewrite of a CUDA check, or undo it, if there is an objection to it; return whether it was."""
    asked = asked_in(plan, question)
    assert asked is not None  # noqa: S101  # settle() passes only CUDA checks
    found = regions_of(plan.view, asked)
    named = regions_of_name(plan.view, found)
    guard = guard_around(plan.view, asked) if found.is_entry and question.rule == "runtime-call" else None
    if guard is not None and stops_for_precision(plan, guard):
        reason = "stops the program without CUDA because of its precision; decide which precision other devices use"
        return plan.reconsider(question.node, reason, question="precision")
    if guard is not None and plan.decided.answer_to("cuda-guard") != "keep":
        plan.cuda_guards[question.node] = guard
    is_for_kernels = guard is not None and writes_kernels(plan.view)
    is_entry = found.is_entry and question.rule == "runtime-call" and not _is_merged(question) and not is_for_kernels
    if is_entry and (line := _next_that_stays(plan, asked)):
        plan.cuda_guards.pop(question.node, None)
        return plan.reconsider(question.node, f"stops the program before line {line}, which only CUDA can; keep both")
    if is_entry and _is_at_entry(plan, question.node):
        return False  # the program checks at startup whether it can run; after the rewrite it can
    if guard is not None and _is_merged(question) and plan.decided.answer_to("cuda-guard") == "":
        plan.cuda_guards.pop(question.node, None)
        return plan.reconsider(question.node, _OF_SEVERAL, SiteOutcome.LEFT)
    of_code = [*of_kept_answer(plan, found), *of_what_depends(plan, [found, *named], asked), *of_other_way(plan, found)]
    of_code += filter(None, [of_constants(plan, [each for one in (found, *named) for each in one.blocks])])
    if any(not each.is_of_cpu for each in of_code):
        plan.cuda_guards.pop(question.node, None)
    if is_count_tested(plan, asked):
        after = of_what_depends(plan, [each for each in named if not each.is_entry], asked)
        objections = [each for each in (*after, of_other_file(plan, found)) if each is not None and not each.is_of_cpu]
        return bool(objections) and _answered(plan, question, asked, [], objections)
    of_use = _of_test(plan, question, found) if found.is_test else of_value(plan, found, named)
    if question.rule in _OF_TENSOR and asks_for_kernels(plan, asked, found.other):
        of_use = OF_KERNELS
    is_free = not of_code and of_use is None and is_program(plan.view)
    if guard is not None and (not is_free or _is_merged(question) or is_for_kernels):
        is_of_cpu = (
            not of_code and not is_for_kernels and not _is_merged(question) and _is_before_known(plan, found, guard)
        )
        of_use = Objection("cuda-guard", advice_on(plan.view, guard), is_of_cpu)
    of_names = None if found.is_test else of_guards_named(plan.view, named)
    of_answer = None
    is_settled = any(not each.is_of_cpu for each in (*of_code, *filter(None, (of_use, of_names))))
    if not is_settled and question.node not in plan.exact and not asks_for_bfloat16(plan, asked):
        is_start = _is_at_entry(plan, question.node)
        of_answer = next((why for each in (found, *named) if (why := of_cpu(plan, each, is_start=is_start))), None)
    if found.is_entry and question.rule == "runtime-call" and _does_more_than_stop(plan, asked, guard):
        of_answer = _OF_CONDITION
    others = (of_use, of_names, of_answer, of_other_file(plan, found))
    objections = [*of_code, *(each for each in others if each is not None)]
    return _answered(plan, question, asked, [*found.all, *(each for one in named for each in one.all)], objections)


def _does_more_than_stop(plan: Plan, asked: cst.CSTNode, guard: cst.CSTNode | None) -> bool:
    """Return whether a guard has further conditions, or does something before it stops: it is to stop a CPU, too."""
    is_asserted = any(isinstance(each, cst.Assert) for each in plan.view.ancestors(asked))
    return (guard is None and not is_asserted) or condition_around(plan, asked) is not None


def _is_before_known(plan: Plan, found: Regions, guard: cst.CSTNode) -> bool:
    """Return whether a guard that goes on to stop a CPU lets other accelerators into nothing but code that is ported.

    Proof: ``assert get_accelerator().device_name() != "cpu"`` stops a CPU as it did, with the same message, and passes on
    CUDA. Another accelerator passes: something behind the guard is rewritten, nothing there stays CUDA's, in the whole class
    of a method, and all that is called is torch's, Python's, the program's or a method.
    """
    owner = plan.view.class_around(guard)
    tests = [each.test for each in plan.view.ancestors(guard) if isinstance(each, cst.If)]
    stays = [
        one
        for one in (decided_in(plan, owner) if owner is not None else ())
        if one.outcome is SiteOutcome.REPORTED and asked_in(plan, one) is None
    ]
    is_parallel = any(DATA_PARALLEL.search(plan.view.code(each)) for each in found.blocks)
    is_known = not stays and not is_parallel and is_known_code(plan, [guard, *tests, *found.blocks])
    return is_known and bool(rewritten_in(plan, found.blocks))


def _answered(
    plan: Plan, question: SiteDecision, asked: cst.CSTNode, regions: list[cst.CSTNode], objections: list[Objection]
) -> bool:
    """Change the rewrite of a check according to the objections to it; return whether it has changed.

    If a CPU's behaviour is the only objection, the rewrite becomes one that a CPU answers with no.
    """
    others = [each for each in objections if not each.is_of_cpu]
    if question.node in plan.exact:
        objections = others
    if not objections:
        return asked in plan.must_be_exact and state_exactly(plan, question, asked)
    first = (others or objections)[0]
    is_answered = plan.decided.answer_to(first.question) != ""
    if not is_answered and leave_own_branch(plan, question, asked, regions):
        return True
    is_asked = others or (is_answered and first.question in _OF_GUARDS)
    if not is_asked and state_exactly(plan, question, asked):
        plan.cuda_guards.pop(question.node, None)  # the node may be another one now
        return True
    return plan.reconsider(question.node, first.reason, question=first.question)


def _is_merged(question: SiteDecision) -> bool:
    """Return whether a question is for any of several accelerators, which leaves the CPU out on purpose."""
    return isinstance(question.node, cst.BooleanOperation)


def _of_test(plan: Plan, question: SiteDecision, found: Regions) -> Objection | None:
    if question.rule in _OF_TENSOR and found.is_entry:
        return OF_KERNELS
    regions = found.blocks or found.operands
    if not regions and _only_moves(plan, question.node):
        return None
    if asks_for_bfloat16(plan, question.node):
        return None
    if rewritten_in(plan, regions) or (regions and all(is_neutral(plan.view, each) for each in regions)):
        return None
    return Objection(
        "nothing-rewritten",
        "no code that depends on it is specific to CUDA; decide whether other devices take this branch",
        is_of_cpu=is_known_code(plan, regions),
    )


def _only_moves(plan: Plan, asked: cst.CSTNode) -> bool:
    """Return whether a branch only moves objects to another tensor's device: ``if not p.is_cuda: model.to(x.device)``.

    An object that is already on the accelerator does not need to move. On other devices, the old code moved it to the
    device that it was already on.
    """
    test = next((each for each in plan.view.ancestors(asked) if isinstance(each, cst.If | cst.BaseSuite)), None)
    if not isinstance(test, cst.If) or test.orelse is not None:
        return False
    lines = [
        each for line in test.body.body for each in (line.body if isinstance(line, cst.SimpleStatementLine) else [line])
    ]
    moves = [each.value for each in lines if isinstance(each, cst.Expr)]
    return len(moves) == len(lines) and all(
        isinstance(each, cst.Call) and re.search(r"\.to\([\w.\[\]]*\.device\)$", plan.view.code(each)) for each in moves
    )


def _is_at_entry(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a place is at module level, or in a main function of the program such as ``main`` or ``train``."""
    owner = next((each for each in plan.view.ancestors(node) if isinstance(each, cst.FunctionDef | cst.ClassDef)), None)
    if owner is None or not isinstance(owner, cst.FunctionDef):
        return owner is None
    return owner.name.value in (ENTRIES if is_program(plan.view) else MAINS)  # train() is also a library's function
