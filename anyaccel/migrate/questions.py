"""Finds decisions about a question such as ``torch.cuda.is_available()``, and the expression that holds its answer."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING

import libcst as cst

from .regions import leaves, regions_of
from .source_view import dotted, text_of
from .stored_answers import regions_of_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .plan import Plan, SiteDecision
    from .source_view import SourceView

__all__ = [
    "OF_HANDLE",
    "OF_MESSAGE",
    "OF_WORD",
    "asked_in",
    "asks_whether_any",
    "is_compared",
    "is_count_needed",
    "is_count_tested",
    "is_in_text_of_cuda",
    "is_shown",
]


def asked_in(plan: Plan, decision: SiteDecision) -> cst.CSTNode | None:
    """Return the expression whose value is the answer; None if the decision is not about a question."""
    node = decision.node
    if node in plan.exact:
        return plan.exact[node]
    if decision.rule == "amp" and plan.view.name(getattr(node, "func", node)) == "torch.is_autocast_enabled":
        return node
    if decision.rule == "comm-backend":
        return next((each for each in plan.view.ancestors(node) if each in plan.questions), None)
    if decision.rule == "is-cuda" or node in plan.questions or isinstance(node, cst.BooleanOperation):
        return node
    if decision.rule == "typed-tensor":
        is_test = isinstance(node, cst.Comparison) or (isinstance(node, cst.Call) and dotted(node.func) == "isinstance")
        return node if is_test else None
    name = plan.view.name(node.func) if isinstance(node, cst.Call) else plan.view.name(node)
    if name == "torch.cuda._initialized":
        return node
    call = node if isinstance(node, cst.Call) else plan.view.parent(node)
    if name in ("torch.cuda.is_available", "torch.cuda.is_initialized"):
        return call
    return call if name == "torch.cuda.device_count" and call is not None and asks_whether_any(plan, call) else None


def asks_whether_any(plan: Plan, call: cst.CSTNode) -> bool:
    """Return whether a device count only distinguishes zero from one or more; ``> 1`` asks something else.

    A stored count qualifies too if its name contains cuda, if some file compares that name with 0, or if a test reads it.
    """
    return _says_whether_any(plan, call) or _is_tested(plan.view, call)


def is_count_tested(plan: Plan, asked: cst.CSTNode) -> bool:
    """Return whether a question is a count that only tests elsewhere make one: it is still a number, and 0 on a CPU."""
    is_count = isinstance(asked, cst.Call) and plan.view.name(asked.func) == "torch.cuda.device_count"
    return is_count and not _says_whether_any(plan, asked)


def _says_whether_any(plan: Plan, call: cst.CSTNode) -> bool:
    around = plan.view.parent(call)
    target = around.targets[0].target if isinstance(around, cst.Assign) and len(around.targets) == 1 else None
    if isinstance(around, cst.AnnAssign):
        target = around.target
    if target is not None:
        name = _name_of_target(target)
        return "cuda" in name.lower() or name in plan.project.compared_with_0
    if isinstance(around, cst.Comparison):
        return not re.search(r"(>\s*[1-9]|>=\s*[2-9])$", plan.view.code(around).strip())
    if isinstance(around, cst.Arg):
        loop = plan.view.parent(plan.view.parent(around) or around)
        return isinstance(loop, cst.For | cst.CompFor)
    inner = call
    while isinstance(around, cst.BooleanOperation) and around.right is inner:
        inner, around = around, plan.view.parent(around)  # `n or device_count()` is a number, unless it is a condition
    if isinstance(around, cst.IfExp) and plan.view.code(around.orelse) == "0":
        return True  # `device_count() if is_available() else 0` distinguishes zero from one or more
    if isinstance(around, cst.If | cst.IfExp | cst.While | cst.Assert):
        return around.test is inner
    return isinstance(around, cst.BooleanOperation | cst.UnaryOperation)


_OTHER_WAYS = (cst.Comparison, cst.ComparisonTarget, cst.BinaryOperation, cst.BooleanOperation)


def _is_tested(view: SourceView, count: cst.CSTNode) -> bool:
    """Return whether a test reads a stored count and distinguishes zero from more."""
    known = _tested_counts(view)
    if count not in known:
        named = [] if isinstance(view.parent(count), _OTHER_WAYS) else regions_of_name(view, regions_of(view, count))
        tests = [each.asked for each in named if each.is_test and not isinstance(view.parent(each.asked), cst.Arg)]
        known[count] = any(_comes_after(view, test, count) for test in tests)
    return known[count]


def _comes_after(view: SourceView, test: cst.CSTNode, count: cst.CSTNode) -> bool:
    """Return whether a test may read a count: ``if n < 1: n = torch.cuda.device_count()`` does not."""
    functions = [
        next((each for each in view.ancestors(node) if isinstance(each, cst.FunctionDef | cst.Lambda)), None)
        for node in (test, count)
    ]
    return functions[0] is not functions[1] or view.position(test) > view.position(count)


@lru_cache(maxsize=1)  # asked many times for each count of a module
def _tested_counts(_: SourceView) -> dict[cst.CSTNode, bool]:
    return {}


_CATCHES = re.compile(r"\b(suppress|raises|assertRaises\w*)\(")
_OF_PROCESSES = re.compile(
    r"(^|_)(world_size|n_?procs?|nproc_per_node|num_proc(esse)?s|ngpus_per_node)$", re.IGNORECASE
)
_IS_NONE = re.compile(r"(==|<=) *0$|< *1$")
_DDP = re.compile(r"\b\w*(DDP|DistributedDataParallel)\(")
_OF_TYPE = re.compile(r"\.type (!= [\"']cpu|== [\"']cuda)[\"']")
_IS_SEVERAL = re.compile(r"> *1$|>= *2$")
OF_HANDLE = "a raw CUDA handle, for code that works on CUDA only"
OF_MESSAGE = "shown in a message about CUDA"
OF_WORD = "a text that only contains the word"
_SHOWN = re.compile(r"^(print|.*\.(info|debug|warning|warn|error|log|write|format)|.*(Error|Exception))$")


def is_count_needed(plan: Plan, call: cst.CSTNode) -> bool:
    """Return whether a program cannot run on a CPU with a device count of 0, or only asks whether there is a device.

    ``rank % torch.cuda.device_count()`` divides by it, ``mp.spawn`` starts that many processes, and an assertion
    compares with it. Elsewhere a CPU works with 0, which the contract's count would change.
    """
    around = plan.view.parent(call)
    is_asserted = isinstance(around, cst.Comparison) and isinstance(plan.view.parent(around), cst.Assert)
    if is_asserted and _wraps_only_other_than_cpu(plan.view):
        return False
    if _says_whether_any(plan, call):
        return True
    if isinstance(around, cst.Assign) and len(around.targets) == 1:
        target = around.targets[0].target
        uses = plan.view.uses(target) or []
        compared = [plan.view.code(each) for each in plan.view.compared_with_numbers.get(dotted(target) or "", ())]
        if any(map(_IS_NONE.search, compared)):
            return False  # the program says what 0 means
        of_attribute = compared if isinstance(target, cst.Attribute) else []
        if any(
            map(_IS_SEVERAL.search, [*of_attribute, *(plan.view.code(plan.view.parent(use) or use) for use in uses)])
        ):
            return False  # it goes on with 0 as with 1
        needing = [use for use in uses if _needs(plan, use) and not _is_asserted_only_if(plan, use, around)]
        return _OF_PROCESSES.search(_name_of_target(target)) is not None or bool(needing)
    return _needs(plan, call)


def _is_asserted_only_if(plan: Plan, use: cst.CSTNode, stored: cst.Assign) -> bool:
    """Return whether an assertion on a stored count may not run: the program then goes on with 0."""
    asserted = next((each for each in plan.view.ancestors(use) if isinstance(each, cst.Assert)), None)
    if asserted is None:
        return False
    around = list(plan.view.ancestors(asserted))
    function = plan.view.function_around(asserted)
    if function is not plan.view.function_around(stored):
        is_nested = any(each in around for each in plan.view.ancestors(stored) if isinstance(each, cst.FunctionDef))
        return is_nested or function is None or not _asserts(plan.view, function.body, use)
    blocks = [
        each for each in around if each in set(plan.view.ancestors(stored)) and isinstance(each, cst.IndentedBlock)
    ]
    return not any(_asserts(plan.view, each, use) for each in [*blocks, plan.view.module])


def _asserts(view: SourceView, part: cst.CSTNode | None, use: cst.CSTNode) -> bool:
    """Return whether code asserts on a name whenever it runs."""
    if isinstance(part, cst.BaseSuite | cst.SimpleStatementLine | cst.Module):
        reached = takewhile(lambda each: not _may_leave(view, each), part.body)
        return any(_asserts(view, each, use) for each in reached)
    if isinstance(part, cst.Assert):
        read = (each for each in view.inside(part, cst.Name, cst.Attribute) if view.code(each) == view.code(use))
        return any(not any(isinstance(one, cst.Or) for one in _operators_around(view, each)) for each in read)
    if isinstance(part, cst.If):
        return part.orelse is not None and _asserts(view, part.body, use) and _asserts(view, part.orelse, use)
    if isinstance(part, cst.Try) and not all(leaves(view, each.body) for each in part.handlers):
        return False  # it goes on where the assertion fails, or where what is before it does
    is_block = isinstance(part, cst.With) and not any(_CATCHES.search(view.code(each)) for each in part.items)
    return (is_block or isinstance(part, cst.Try | cst.Else)) and _asserts(view, part.body, use)  # type: ignore[union-attr]


def _may_leave(view: SourceView, statement: cst.CSTNode) -> bool:
    is_definition = isinstance(statement, cst.FunctionDef | cst.ClassDef)
    return not is_definition and any(view.inside(statement, cst.Return, cst.Continue, cst.Break))


def _operators_around(view: SourceView, node: cst.CSTNode) -> Iterator[cst.BaseBooleanOp]:
    for around in view.ancestors(node):
        if isinstance(around, cst.BooleanOperation):
            yield around.operator
        if isinstance(around, cst.BaseSmallStatement):
            return


def _needs(plan: Plan, count: cst.CSTNode) -> bool:
    around = plan.view.parent(count)
    if isinstance(around, cst.BinaryOperation):
        is_text = text_of(around.left) is not None  # "%d GPUs" % torch.cuda.device_count()
        return isinstance(around.operator, cst.Modulo | cst.FloorDivide) and around.right is count and not is_text
    if isinstance(around, cst.Arg):
        owner = plan.view.parent(around)
        called = (dotted(owner.func) or "") if isinstance(owner, cst.Call) else ""
        name = around.keyword.value if around.keyword is not None else ""
        return called.endswith("spawn") or (_OF_PROCESSES.search(name) is not None)
    if isinstance(around, cst.Comparison | cst.ComparisonTarget):
        return any(isinstance(each, cst.Assert) for each in plan.view.ancestors(count))
    return False


@lru_cache(maxsize=1)  # asked for each count of a module
def _wraps_only_other_than_cpu(view: SourceView) -> bool:
    """Return whether a model is wrapped in DDP under a test for its device: ranks on CPUs would train apart from each other."""
    for test in view.of(cst.If) if _DDP.search(view.source) else ():
        tested = [test.test, *(value for name in view.inside(test.test, cst.Name) for value in view.values_of(name))]
        if any(_OF_TYPE.search(view.code(each)) for each in tested) and _DDP.search(view.code(test.body)):
            return True
    return False


def is_compared(plan: Plan, value: cst.CSTNode) -> bool:
    """Return whether a value, or the name it is stored under, is part of a comparison outside of an assertion."""
    around = plan.view.parent(value)
    if any(isinstance(each, cst.Assert) for each in plan.view.ancestors(value)):
        return False  # the assertion stops a CPU
    while isinstance(around, cst.BinaryOperation):
        around = plan.view.parent(around)
    if isinstance(around, cst.Comparison | cst.ComparisonTarget):
        return True
    uses = plan.view.uses(around.targets[0].target) if isinstance(around, cst.Assign) else None
    told = [plan.view.parent(use) for use in uses or ()]
    return any(isinstance(each, cst.Comparison | cst.ComparisonTarget) for each in told)


def is_shown(plan: Plan, value: cst.CSTNode) -> bool:
    """Return whether a value is only part of a message."""
    around = plan.view.parent(value)
    owner = plan.view.parent(around) if isinstance(around, cst.Arg) else None
    if isinstance(owner, cst.Call) and dotted(owner.func) in ("int", "str"):
        return is_shown(plan, owner)
    joined = around if isinstance(around, cst.BinaryOperation) and isinstance(around.operator, cst.Add) else None
    if joined is not None and next(iter(plan.view.inside(joined, cst.SimpleString)), None) is not None:
        return _names_cuda(plan, joined) or is_shown(plan, joined)  # "CUDA devices: " + str(count)
    is_said = isinstance(owner, cst.Call) and _SHOWN.match(dotted(owner.func) or "") is not None
    return is_said or isinstance(around, cst.FormattedStringExpression) or is_in_text_of_cuda(plan, value)


def _names_cuda(plan: Plan, joined: cst.BinaryOperation) -> bool:
    return any("cuda" in (text_of(each) or "").lower() for each in plan.view.inside(joined, cst.SimpleString))


def is_in_text_of_cuda(plan: Plan, value: cst.CSTNode) -> bool:
    """Return whether a value is put into a text that names CUDA: ``"%d CUDA devices" % value``, ``f"cuda={value}"``."""
    around = plan.view.parent(value)
    if isinstance(around, cst.FormattedStringExpression):
        text = plan.view.parent(around)
        shown = [part.value for part in plan.view.inside(text, cst.FormattedStringText)] if text is not None else []
        return "cuda" in " ".join(shown).lower() or around.equal is not None  # f"{x.is_cuda=}" says it, too
    listed = plan.view.parent(around) if isinstance(around, cst.Element) else None
    inner, outer = (listed, plan.view.parent(listed)) if isinstance(listed, cst.Tuple) else (value, around)
    if isinstance(outer, cst.BinaryOperation) and isinstance(outer.operator, cst.Modulo) and outer.right is inner:
        return "cuda" in (text_of(outer.left) or "").lower()
    call = plan.view.parent(outer) if isinstance(outer, cst.Arg) else None
    formatted = call.func if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) else None
    return (
        formatted is not None
        and formatted.attr.value == "format"
        and "cuda" in (text_of(formatted.value) or "").lower()
    )


def _name_of_target(target: cst.BaseExpression) -> str:
    """Return the last name of an assignment target: its attribute, string key or variable; empty for other targets."""
    if isinstance(target, cst.Attribute):
        return target.attr.value
    if isinstance(target, cst.Subscript) and isinstance(target.slice[0].slice, cst.Index):
        return text_of(target.slice[0].slice.value) or ""
    return target.value if isinstance(target, cst.Name) else ""
