"""Objections to porting a question that come from the branch for false, or from the use of a stored answer."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

import libcst as cst

from .answers import Objection
from .choices import is_plain_other
from .cpu_form import ACCELERATOR, cpu_form
from .kinds import Kind, kind_of
from .regions import following, leaves
from .site import SiteOutcome
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .plan import Plan
    from .regions import Regions

__all__ = [
    "NAMES_HALF",
    "appended",
    "functions_called",
    "is_number",
    "of_kept_answer",
    "of_other_way",
    "stops_for_precision",
]

NAMES_HALF = re.compile(r"fp16|float16|\bhalf\b")
_SHOWN = re.compile(r"^(print|warn|.*\.(info|debug|warn|warning|log|write|format|append))$")
_FOR_CUDA = re.compile(
    r"\b(only (support(s|ed)?|available|enabled|possible|implemented|works?|runs?|on|for|with)|requires?|needs?)\b"
    r"[^.;]*\b(cuda|gpus?)\b"
    r"|\b(cuda|gpu)[ -]only",
    re.IGNORECASE,
)
_CPUS_OWN = re.compile(r"(^|_)cpu_?(?!count|s?$)[a-z]|^_?(CPU|Cpu)[A-Z_]|[a-z](CPU|Cpu)([A-Z_]|$)|_cpu$")
_NO_LOCATION = re.compile(r"\bmap_location\s*=\s*None\b")
_ATTENTION = re.compile(r"attn_(backend|impl(ementation)?)\b|[\"'](sdpa|eager)[\"']")
_CUDAS_KERNELS = re.compile(r"flash_?att|triton|xformers|apex|(^|_)(bnb|fa[23]|trt)(_|$)|cuda_?kernel", re.IGNORECASE)
_TO_HOST = re.compile(r"\.cpu\(\)|\.to\([\"']cpu[\"']\)")
_INDEX = re.compile(r"\.(get_device|current_device)\(\)|\.index\b")
_OF_CUDAS_INDEX = re.compile(r"cuda(?!.*_(ms|secs?|seconds|time|loss|memory|[mg]b|bytes|version)\W*$)", re.IGNORECASE)
_NO_INDEX = re.compile(r"^(return |(?P<name>[\w.]+) = )?-1$")
_OF_APPLE = re.compile(r"\b(is_)?mps\b|_mps_")
_IS_ON_MPS = re.compile(r"^[\w.()]+\.is_mps$")
_IS_DEVICE = re.compile(r"""^(torch\.device\()?["'](cuda|mps)(:0)?["']\)?$""")
_AS_ACCELERATOR = (  # what CUDA and Apple's GPU call differently, and the contract by one name
    (re.compile(r"\btorch\.mps\.current_allocated_memory\b"), f"{ACCELERATOR}.memory_allocated"),
    (re.compile(r"\btorch\.mps\.driver_allocated_memory\b"), f"{ACCELERATOR}.memory_reserved"),
    (re.compile(r"\btorch\.(cuda|mps)\."), f"{ACCELERATOR}."),
    (re.compile(r"""(["'])(cuda|mps)(:0)?\1|f(["'])cuda:\{[^{}\[\]]*\}\4"""), '"cpu"'),
    (re.compile(r"\.cuda\(\)"), '.to("cpu")'),
    (re.compile(r"\.cuda\("), '.to("cpu", '),
)
_OF_MIXED = re.compile(r"\b(amp|apex|fp16|half|mixed[ -]precision)\b", re.IGNORECASE)


def stops_for_precision(plan: Plan, guard: cst.CSTNode) -> bool:
    """Return whether a guard stops the program without CUDA because of mixed precision."""
    return _OF_MIXED.search(plan.view.code(guard)) is not None


def of_other_way(plan: Plan, found: Regions) -> Iterator[Objection]:
    """Yield the objections if the branch for false says that CUDA is required, or uses a TPU, CPU code or a number."""
    yield from _of_apple(plan, found)
    yield from _of_checkpoint(plan, found)
    yield from _of_no_index(plan, found)
    branches = [*found.all, *([found.other] if found.other is not None else [])]
    for call in (each for branch in branches for each in plan.view.inside(branch, cst.Call)):
        if _SHOWN.match(dotted(call.func) or "") and _FOR_CUDA.search(plan.view.code(call)):
            line = plan.view.position(call)[0]
            yield Objection(
                "depends-on-cuda",
                f"a message says that this needs CUDA (line {line}); decide whether other devices may run it",
            )
    if found.other is None:
        return
    if "torch_xla" in plan.view.code(found.other):
        reason = "the other branch checks for a TPU; check for it first"
        yield Objection("depends-on-cuda", reason, is_of_cpu=True)  # a host of TPUs has no other accelerator
    for name in plan.view.inside(found.other, cst.Name):
        is_attribute = isinstance(around := plan.view.parent(name), cst.Attribute) and around.attr is name
        if (
            _CPUS_OWN.search(name.value)
            and not is_attribute
            and (name.value in plan.view.defined_names or plan.view.name(name))
        ):
            yield Objection(
                "depends-on-function",
                f"the other branch uses {name.value} on a CPU; decide which branch a CPU takes",
                is_of_cpu=True,
            )
    yield from _of_switch(plan, found.other)
    yield from _of_other_choice(plan, found, found.other)
    if _ATTENTION.search(plan.view.code(found.other)):
        yield Objection(
            "depends-on-function", "the other branch sets an attention that every device has; decide which others use"
        )
    is_of_tensor = not isinstance(found.asked, cst.Call | cst.BooleanOperation)
    if is_of_tensor and not found.blocks and _TO_HOST.search(plan.view.code(found.other)):
        yield Objection(
            "depends-on-function",
            "moves to the CPU what is not on CUDA; decide whether what follows takes other devices",
        )


def _of_checkpoint(plan: Plan, found: Regions) -> Iterator[Objection]:
    """Yield an objection if a checkpoint is loaded by ``map_location`` without CUDA only: other devices need it, too."""
    others = _others(plan, found)
    called = [function for each in others for function in functions_called(plan, each)]
    is_for_cpu = any(_names_location(plan, each) for each in (*others, *called))
    given = [each for each in found.blocks if not _NO_LOCATION.search(plan.view.code(each))]
    if is_for_cpu and not any(_names_location(plan, each) for each in given):
        yield Objection(
            "depends-on-cuda", "without CUDA a checkpoint is loaded by map_location; decide how other devices load it"
        )


def functions_called(plan: Plan, region: cst.CSTNode) -> list[cst.FunctionDef]:
    """Return the functions of this module that a region calls, by their names."""
    names = {(dotted(each.func) or "").rpartition(".")[2] for each in plan.view.inside(region, cst.Call)}
    return [each for each in plan.view.of(cst.FunctionDef) if each.name.value in names]


def _names_location(plan: Plan, region: cst.CSTNode) -> bool:
    """Return whether code, without its comments, names ``map_location``, or has it as a key: ``{"map_location": "cpu"}``."""
    keys = (text_of(each) for each in plan.view.inside(region, cst.SimpleString))
    return "map_location" in {*keys, *(each.value for each in plan.view.inside(region, cst.Name))}


def _others(plan: Plan, found: Regions) -> list[cst.CSTNode]:
    """Return the branch for false, or the statement that runs instead; empty if there is none."""
    others = [found.other] if found.other is not None else []
    test = plan.view.parent(found.blocks[0]) if found.blocks and not others else None
    if isinstance(test, cst.If) and leaves(plan.view, test.body):
        others = following(plan.view, test)[:1]
    return others


def _of_no_index(plan: Plan, found: Regions) -> Iterator[Objection]:
    """Yield an objection if the answer is an index, or -1, by which other code may call what is CUDA's."""
    is_index = any(_INDEX.search(plan.view.code(each)) for each in found.blocks)
    for each in _others(plan, found):
        value = each.body[-1] if isinstance(each, cst.IndentedBlock | cst.SimpleStatementLine) else each
        around = plan.view.parent(plan.view.parent(each) or each)
        targets: list[cst.CSTNode] = [each.target for each in around.targets] if isinstance(around, cst.Assign) else []
        targets += [around.target] if isinstance(around, cst.AnnAssign | cst.NamedExpr) else []
        keyword = [around.keyword] if isinstance(around, cst.Arg) and around.keyword is not None else []
        named = [plan.view.code(name) for name in (*targets, *keyword)]
        told = _NO_INDEX.search(plan.view.code(value).strip())
        if told and (is_index or any(map(_OF_CUDAS_INDEX.search, [*named, told["name"] or ""]))):
            yield Objection(
                "depends-on-cuda", "an index for CUDA, and -1 otherwise, depends on it; decide what other devices have"
            )


def _of_apple(plan: Plan, found: Regions) -> Iterator[Objection]:
    """Yield an objection if Apple's GPU has a branch that does something else than CUDA's, which it would take."""
    apples = _apples_way(plan, found)
    test = getattr(plan.view.parent(apples[0]), "test", None) if apples else None
    asked = plan.view.code(test) if test is not None else ""
    is_plain = test is None or is_plain_other(asked) or _IS_ON_MPS.match(asked) is not None
    form = _for_any(plan, found.blocks) if apples and is_plain else None
    if apples and (form is None or form != _for_any(plan, apples)):
        line = plan.view.position(apples[0])[0]
        yield Objection(
            "depends-on-cuda",
            f"Apple's GPU has a branch that does something else (line {line}); decide which one it takes",
        )


def _apples_way(plan: Plan, found: Regions) -> list[cst.CSTNode]:
    """Return the code that runs for Apple's GPU if a question about CUDA is false; empty if there is none."""
    other = found.other
    if other is None and found.blocks:
        test = plan.view.parent(found.blocks[0])
        goes_on = isinstance(test, cst.If) and test.body is found.blocks[0] and leaves(plan.view, test.body)
        other = next(iter(following(plan.view, test)), None) if goes_on and isinstance(test, cst.If) else None
    if isinstance(other, cst.BaseSuite) and other.body:
        other = other.body[0]
    is_apples = isinstance(other, cst.If | cst.IfExp) and _OF_APPLE.search(plan.view.code(other.test)) is not None
    if is_apples and isinstance(other, cst.If | cst.IfExp):
        return [other.body]
    is_within = found.other is not None and _OF_APPLE.search(plan.view.code(found.other)) is not None
    return [found.other] if is_within and found.other is not None else []


def _for_any(plan: Plan, nodes: list[cst.CSTNode]) -> str | None:
    """Return the normal form of code in which CUDA, or Apple's GPU, is replaced by the accelerator.

    A name that only this code reads, such as ``mps_device = torch.device("mps")``, does nothing itself.
    """
    texts = []
    for node in nodes:
        code = textwrap.dedent(plan.view.code(node).replace("\r\n", "\n"))
        for name in _own_devices(plan, node):
            code = re.sub(rf"^[ \t]*{name} = .*\n", "", code, flags=re.MULTILINE)
        texts.append(f"__value__ = ({code})" if isinstance(node, cst.BaseExpression) else code)
    text = "\n".join(texts)
    for pattern, new in _AS_ACCELERATOR:
        text = pattern.sub(new, text)
    return cpu_form(text)


def _own_devices(plan: Plan, node: cst.CSTNode) -> list[str]:
    """Return the names of a device that code sets, and that nothing else reads."""
    found = []
    for assigned in plan.view.inside(node, cst.Assign):
        target = assigned.targets[0].target
        uses = plan.view.uses(target) if len(assigned.targets) == 1 and isinstance(target, cst.Name) else None
        is_device = _IS_DEVICE.match(plan.view.code(assigned.value)) is not None
        if is_device and uses and all(plan.view.is_within(use, node) for use in uses) and isinstance(target, cst.Name):
            found.append(target.value)
    return found


def _of_switch(plan: Plan, other: cst.CSTNode) -> Iterator[Objection]:
    """Yield an objection if kernels of CUDA's are switched off without CUDA: ``if device != "cuda": use_flash_attn = False``."""
    for each in plan.view.inside(other, cst.Assign):
        name = dotted(each.targets[0].target) or ""
        if _CUDAS_KERNELS.search(name) and dotted(each.value) in ("False", "None"):
            reason = f"{name} is switched off without CUDA; decide which other devices have it"
            yield Objection("depends-on-function", reason)


def _of_other_choice(plan: Plan, found: Regions, other: cst.CSTNode) -> Iterator[Objection]:
    """Yield the objections if the other branch sets the same name to a number, or to the CPU instead of an index."""
    assigned = [each for region in found.blocks for each in plan.view.inside(region, cst.Assign)]
    for each in plan.view.inside(other, cst.Assign):
        name = dotted(each.targets[0].target)
        chosen = [one.value for one in assigned if name is not None and dotted(one.targets[0].target) == name]
        if chosen and (is_number(each.value) or _is_cpu_count(each.value)):
            yield Objection(
                "precision", "the other branch sets another number; decide what other devices use", is_of_cpu=True
            )
        if text_of(each.value) == "cpu" and any(kind_of(plan.view, one) is Kind.INDEX for one in chosen):
            yield Objection(
                "depends-on-cuda", f"{name} is an index for CUDA and the CPU otherwise; decide what other devices use"
            )


def _is_cpu_count(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and (dotted(node.func) or "").endswith("cpu_count")


def is_number(node: cst.CSTNode) -> bool:
    """Return whether an expression is a number."""
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Minus)
    return isinstance(node, cst.Integer | cst.Float)


def of_kept_answer(plan: Plan, found: Regions) -> Iterator[Objection]:
    """Yield an objection if a stored answer chooses a precision: ``self.fp16 = self.cuda and opt.fp16``."""
    kept = dotted(found.value.targets[0].target) if isinstance(found.value, cst.Assign) else None
    for both in plan.view.of(cst.BooleanOperation) if kept is not None else ():
        halves = (both.left, both.right)
        if any(dotted(each) == kept for each in halves) and any(
            NAMES_HALF.search(plan.view.code(each)) for each in halves
        ):
            line = plan.view.position(both)[0]
            reason = f"a precision depends on it (line {line}); decide what other devices use"
            yield Objection("precision", reason, is_of_cpu=True)


def appended(plan: Plan, region: cst.CSTNode) -> str:
    """Return what a reported rng call takes and a region decides: a list, or the function around it; empty for nothing."""
    choice = plan.view.parent(region)
    around = plan.view.parent(choice) if isinstance(choice, cst.IfExp) else None
    stored = [dotted(each.target) for each in around.targets] if isinstance(around, cst.Assign) else []
    function = next((each for each in plan.view.ancestors(region) if isinstance(each, cst.FunctionDef)), None)
    for one in plan.decisions.values():
        if one.rule == "rng" and one.outcome is SiteOutcome.REPORTED and isinstance(one.node, cst.Call):
            made = [dotted(each.value.func) for each in one.node.args if isinstance(each.value, cst.Call)]
            if function is not None and function.name.value in made:
                return f"{function.name.value}()"
            for name in filter(None, (dotted(each.value) for each in one.node.args)):
                if f"{name}.append(" in plan.view.code(region) or name in stored:
                    return name
    return ""
