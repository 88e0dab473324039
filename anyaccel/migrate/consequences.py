"""Undoes rewrites that the code depending on them makes unsafe; runs after every rule that rewrites code."""

from __future__ import annotations

import builtins
import re
import sys
from typing import TYPE_CHECKING

import libcst as cst

from .answer_uses import of_value
from .answers import Objection
from .bfloat16 import keep_other_precisions
from .comparisons import LISTED
from .cuda_guards import advice_on, guard_around, is_program, of_guards_named, writes_kernels
from .device_text import is_device_literal
from .neutral import is_neutral
from .other_ways import NAMES_HALF, appended, is_number, of_kept_answer, of_other_way, stops_for_precision
from .own_branches import leave_own_branch
from .probes import keep_probes
from .questions import asked_in
from .regions import regions_of, regions_of_name
from .same_on_cpu import of_cpu
from .scripts import keep_scripts
from .site import SiteOutcome
from .source_view import dotted
from .together import keep_together

if TYPE_CHECKING:
    from .plan import Plan, SiteDecision
    from .regions import Regions

__all__ = ["settle"]

_PRECISION = re.compile(r"\b(float16|bfloat16|half|fp16|bf16)\b")
_CUDAS_OWN = re.compile(
    r"(^|[._])(_C|ext|extension|cuda\w*|\w+_cuda|apex|flash_attn|triton|fused\w*|multi_tensor\w*|amp_C|\w*kernels?|cupy|bitsandbytes|bnb|pynvml|nvml|tensorrt|\w*nvidia\w*|\w*nvlink\w*)($|[._])"
)
_MOVES = re.compile(r"(^|[._])(to|is|has|use|move)_(the_)?cuda$")
_BUILTINS = frozenset(dir(builtins))
_NCCL = re.compile(r"\S*nccl\S*", re.IGNORECASE)
_NOT_CALLED_BY_NAME = ("__init__", "forward", "cuda", "pin_memory")  # calls of the last two are sites of their own
_MAINS = ("main", "main_worker")
_ENTRIES = (*_MAINS, "train", "run", "worker", "setup")


def settle(plan: Plan) -> None:
    """Report the CUDA checks that guard CUDA-only code, and leave the code that depends on them unchanged."""
    keep_scripts(plan)
    keep_probes(plan)
    keep_other_precisions(plan)
    questions = [one for one in plan.decisions.values() if one.outcome is SiteOutcome.REWRITTEN and asked_in(plan, one)]
    for _ in range(len(questions) + 1):  # another check may depend on the one just reported
        _keep_whole(plan)
        open_ones = [one for one in questions if plan.decisions[one.node].outcome is SiteOutcome.REWRITTEN]
        if not [one for one in open_ones if _object(plan, one)]:
            break
    _keep_whole(plan)
    keep_together(plan)


def _keep_whole(plan: Plan) -> None:
    """Undo rewrites that would leave code partly ported.

    These are rewrites in code that depends on a reported comparison, and in the other parts of a reported string,
    ``if`` chain or condition.
    """
    for decision in list(plan.decisions.values()):
        if decision.outcome is not SiteOutcome.REPORTED:
            continue
        line = plan.view.position(decision.node)[0]
        compared = _comparison_of(plan, decision)
        if compared is not None:
            for one in _rewritten_in(plan, regions_of(plan.view, compared).all):
                what = "NCCL" if decision.rule == "comm-backend" else "a CUDA device"
                reason = f"runs only if line {line} finds {what}; decide on that line, then run again"
                plan.reconsider(one.node, reason, SiteOutcome.LEFT)
        is_text = isinstance(decision.node, cst.FormattedString) and decision.rule != "env"
        if is_text or is_device_literal(decision.node):
            for one in _rewritten_in(plan, [decision.node]):
                plan.reconsider(one.node, "part of a string that is reported")
        for one in _rewritten_in(plan, _other_tests(plan, decision)):
            if one.rule == decision.rule and asked_in(plan, one) is not None:
                plan.reconsider(
                    one.node, f"the same if statement has a reported test at line {line}; decide on both together"
                )
        condition = _condition_around(plan, decision.node)
        for one in _rewritten_in(plan, [condition]) if condition is not None else ():
            if one.rule in ("runtime-call", "is-cuda") or one.node in plan.questions:
                plan.reconsider(
                    one.node, f"the other half of this condition is reported at line {line}; decide on both together"
                )


def _comparison_of(plan: Plan, decision: SiteDecision) -> cst.CSTNode | None:
    """Return the reported comparison with a CUDA device or with NCCL; None if a decision is about anything else."""
    node = decision.node
    if decision.rule not in ("device-name", "comm-backend") or decision.reason == LISTED:
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
    own = next((each for each in plan.view.ancestors(decision.node) if isinstance(each, cst.If | cst.BaseSuite)), None)
    first: cst.CSTNode | None = own
    while isinstance(around := plan.view.parent(first) if first is not None else None, cst.If):
        first = around
    found: list[cst.CSTNode] = []
    while isinstance(first, cst.If):
        found += [first.test] if first is not own else []
        first = first.orelse
    return found


def _condition_around(plan: Plan, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the outermost boolean operation, such as ``a and b``, that contains a site; None if there is none."""
    found = None
    for around in plan.view.ancestors(node):
        if isinstance(around, cst.BooleanOperation):
            found = around
        elif isinstance(around, cst.BaseStatement | cst.BaseSmallStatement | cst.Lambda):
            break
    return found


def _object(plan: Plan, question: SiteDecision) -> bool:
    """Undo the rewrite of a CUDA check if there is an objection to it; return whether it was undone."""
    asked = asked_in(plan, question)
    assert asked is not None  # noqa: S101  # settle() passes only CUDA checks
    found = regions_of(plan.view, asked)
    named = regions_of_name(plan.view, found.value)
    blocks = [each for one in named for each in one.all]
    guard = guard_around(plan.view, asked) if found.is_entry and question.rule == "runtime-call" else None
    if guard is not None and stops_for_precision(plan, guard):
        reason = "stops the program without CUDA because of its precision; decide which precision other devices use"
        return plan.reconsider(question.node, reason, question="precision")
    if guard is not None and plan.decided.answer_to("cuda-guard") != "keep":
        plan.cuda_guards[question.node] = guard
    is_for_kernels = guard is not None and writes_kernels(plan.view)
    is_entry = found.is_entry and question.rule == "runtime-call" and not _is_merged(question) and not is_for_kernels
    if is_entry and _is_at_entry(plan, question.node):
        return False  # the program checks at startup whether it can run; after the rewrite it can
    objection = (
        of_kept_answer(plan, found) or _of_what_depends(plan, [found, *named], asked) or of_other_way(plan, found)
    )
    if objection:
        plan.cuda_guards.pop(question.node, None)
    elif found.is_test:
        objection = _of_test(plan, question, found)
        is_free = objection is None and is_program(plan.view) and not _is_merged(question) and not is_for_kernels
        if guard is not None and not is_free:
            objection = Objection("cuda-guard", advice_on(plan.view, guard))
    else:
        objection = of_value(plan, found, named) or of_guards_named(plan.view, named)
    if objection is None and not _asks_for_bfloat16(plan, asked):
        is_start = _is_at_entry(plan, question.node)
        objection = next((why for each in (found, *named) if (why := of_cpu(plan, each, is_start=is_start))), None)
    is_answered = objection is not None and plan.decided.answer_to(objection.question) != ""
    if objection is None or (not is_answered and leave_own_branch(plan, question, asked, [*found.all, *blocks])):
        return objection is not None
    return plan.reconsider(question.node, objection.reason, question=objection.question)


def _is_merged(question: SiteDecision) -> bool:
    """Return whether a question is for any of several accelerators, which leaves the CPU out on purpose."""
    return isinstance(question.node, cst.BooleanOperation)


def _of_what_depends(plan: Plan, found: list[Regions], asked: cst.CSTNode) -> Objection | None:
    """Return an objection if code that depends on the check stays CUDA-only or chooses a precision.

    Functions of this module that the code calls are searched too.
    """
    tainted = _functions_that_stay(plan)
    condition = _condition_around(plan, asked)
    is_of_half = (
        condition is not None and NAMES_HALF.search(plan.view.code(condition).replace("bfloat16", "")) is not None
    )
    for region in (each for one in found for each in one.all):
        for one in _in_region(plan, region):
            if one.rule == "env" and isinstance(one.node, cst.FormattedString):
                continue  # a message for the user
            if one.outcome is SiteOutcome.REPORTED or (one.outcome is SiteOutcome.LEFT and one.rule != "env"):
                line = plan.view.position(one.node)[0]
                return Objection(
                    "depends-on-cuda",
                    f"code that depends on it stays specific to CUDA (line {line}); port that code, or keep the question",
                )
        foreign = _call_of_cudas_own(plan, region) or (
            _imported_function(plan, region) if asked in plan.questions else ""
        )
        if foreign:
            return Objection(
                "depends-on-function",
                f"{foreign} depends on it and may work on CUDA only; decide whether other devices may run it",
            )
        if nccl := _NCCL.search(_names_in(plan, region)):
            return Objection(
                "depends-on-cuda", f"{nccl[0]} depends on it and is specific to NCCL; decide what other devices use"
            )
        is_asked = _asks_for_bfloat16(plan, asked)
        if (_PRECISION.search(plan.view.code(region)) and not is_asked) or is_number(region) or is_of_half:
            return Objection("precision", "chooses a precision or a number; decide what other devices use")
        if named := appended(plan, region):
            return Objection("depends-on-cuda", f"{named} is passed to a reported call; decide on both together")
        if tainted:
            called = next((name for name in re.findall(r"(\w+)\s*\(", plan.view.code(region)) if name in tainted), "")
            if called:
                return Objection(
                    "depends-on-cuda",
                    f"{called}() depends on it and contains code for CUDA only; port that function, or keep the question",
                )
    return None


def _names_in(plan: Plan, region: cst.CSTNode) -> str:
    """Return the names in a region, and the name of the function or class whose body it is."""
    around = plan.view.parent(region)
    owner = [around.name.value] if isinstance(around, cst.FunctionDef | cst.ClassDef) else []
    names = (node.value for node in plan.view.inside(region, cst.Name))
    return " ".join([*owner, *names])


def _asks_for_bfloat16(plan: Plan, asked: cst.CSTNode) -> bool:
    """Return whether the same condition also checks for bfloat16 with a function that every device has."""
    condition = _condition_around(plan, asked)
    return condition is not None and "is_bf16_supported" in plan.view.code(condition)


def _call_of_cudas_own(plan: Plan, region: cst.CSTNode) -> str:
    """Return the first call or import in a region whose name says that it is CUDA-only; empty if there is none."""
    for node in plan.view.inside(region, cst.Call, cst.Import, cst.ImportFrom):
        if isinstance(node, cst.Call):
            name = dotted(node.func) or ""
            is_torchs = plan.view.name(node.func).startswith("torch.") or name.endswith((".cuda", ".is_available"))
        else:
            name = plan.view.code(node).replace("import", "").replace("from", "").replace(" ", ".")
            is_torchs = "torch" in name
        if not is_torchs and _CUDAS_OWN.search(name) and not _MOVES.search(name):
            return name.strip(".")
    return ""


def _imported_function(plan: Plan, region: cst.CSTNode) -> str:
    """Return the first unknown function that a region calls by its bare name; empty if there is none.

    A function is known if it comes from torch, the standard library, the builtins or this module. A CUDA branch that
    calls an unknown function may use a CUDA kernel for what the other branch does without one.
    """
    for node in plan.view.inside(region, cst.Call):
        if isinstance(node.func, cst.Name):
            name = plan.view.name(node.func)
            root = name.partition(".")[0]
            is_known = root == "torch" or root in sys.stdlib_module_names or node.func.value in plan.view.defined_names
            if not is_known and node.func.value not in _BUILTINS:
                return node.func.value
    return ""


def _functions_that_stay(plan: Plan) -> set[str]:
    """Return the functions of this module that contain a report other than a CUDA check.

    Names that are imported under a reported CUDA check are included.
    """
    reported = [
        one for one in plan.decisions.values() if one.outcome is SiteOutcome.REPORTED and not asked_in(plan, one)
    ]
    found = set()
    for one in plan.decisions.values():
        asked = asked_in(plan, one) if one.outcome is SiteOutcome.REPORTED else None
        for region in regions_of(plan.view, asked).blocks if asked is not None else ():
            for statement in plan.view.inside(region, cst.Import, cst.ImportFrom):
                aliases = () if isinstance(statement.names, cst.ImportStar) else statement.names
                found |= {str(each.evaluated_alias or each.evaluated_name) for each in aliases}
    for one in reported:
        for around in plan.view.ancestors(one.node):
            if isinstance(around, cst.FunctionDef) and around.name.value not in (*_NOT_CALLED_BY_NAME, *_ENTRIES):
                found.add(around.name.value)
                break
    return found


def _of_test(plan: Plan, question: SiteDecision, found: Regions) -> Objection | None:
    if question.rule in ("is-cuda", "typed-tensor", "device-name") and found.is_entry:
        return Objection(
            "kernel-guard",
            "guards code that may work on CUDA only; use get_accelerator().on_accelerator(t) if every device can run it",
        )
    regions = found.blocks or found.operands
    if not regions and _only_moves(plan, question.node):
        return None
    if _asks_for_bfloat16(plan, question.node):
        return None
    if _rewritten_in(plan, regions) or (regions and all(is_neutral(plan.view, each) for each in regions)):
        return None
    return Objection(
        "nothing-rewritten",
        "no code that depends on it is specific to CUDA; decide whether other devices take this branch",
    )


def _only_moves(plan: Plan, asked: cst.CSTNode) -> bool:
    """Return whether a branch only moves objects to another tensor's device: ``if not p.is_cuda: model.to(x.device)``.

    An object that is already on the accelerator does not need to move. On other devices, the old code moved it to the
    device that it was already on.
    """
    test = next((each for each in plan.view.ancestors(asked) if isinstance(each, cst.If | cst.BaseSuite)), None)
    if not isinstance(test, cst.If) or test.orelse is not None:
        return False
    lines = [each for line in test.body.body for each in getattr(line, "body", [line])]
    moves = [each.value for each in lines if isinstance(each, cst.Expr)]
    return len(moves) == len(lines) and all(
        isinstance(each, cst.Call) and re.search(r"\.to\([\w.\[\]]*\.device\)$", plan.view.code(each)) for each in moves
    )


def _is_at_entry(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a place is at module level, or in a main function of the program such as ``main`` or ``train``."""
    owner = next((each for each in plan.view.ancestors(node) if isinstance(each, cst.FunctionDef | cst.ClassDef)), None)
    if owner is None or not isinstance(owner, cst.FunctionDef):
        return owner is None
    return owner.name.value in (_ENTRIES if is_program(plan.view) else _MAINS)  # train() is also a library's function


def _in_region(plan: Plan, region: cst.CSTNode) -> list[SiteDecision]:
    return [one for one in plan.decisions.values() if plan.view.is_within(one.node, region)]


def _rewritten_in(plan: Plan, regions: list[cst.CSTNode]) -> list[SiteDecision]:
    return [one for region in regions for one in _in_region(plan, region) if one.outcome is SiteOutcome.REWRITTEN]
