"""Questions about CUDA that are correct as they are, on every machine.

A test that says that it needs CUDA is skipped without it. ``device == "cuda" and not torch.cuda.is_available()``
checks whether the requested device is available. ``map_location=None if torch.cuda.is_available() else "cpu"`` loads a
checkpoint on a machine without CUDA, whatever other device it has. These are about CUDA itself:
``print("CUDA available:", torch.cuda.is_available())``, an ``if`` whose body only shows messages that name CUDA, a
question next to one for another accelerator by name or for ROCm, and the return value of ``is_cuda_available()``.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING

import libcst as cst

from .choices import asks_availability
from .data_parallel import leave_data_parallel
from .device_text import is_device_literal
from .left_questions import leave_names, leave_questions
from .meant_for_cuda import leave_meant_for_cuda
from .nested_requests import decide_nested_requests
from .questions import OF_MESSAGE
from .requested_devices import OF_REQUEST, decide_requests
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["OF_OTHERS", "decide"]

_SKIPS = ("skipIf", "skipUnless", "skipif", "skip", "skipTest", "SkipTest")
_SAYS_CUDA = re.compile(r"cuda|\bgpus?\b|\bcpu\b|nvidia|nccl", re.IGNORECASE)
_ASKED_FOR = re.compile(r"\bcuda\b.*\b(requested|specified|selected)\b", re.IGNORECASE)
_REASONS = re.compile(r"(^|[._])(reasons?|skips)\.append$")
_RECORDED = re.compile(r"^cuda_(is_)?available_(str|text|msg)$")
_OF_PARAMETER = "a parameter of a test that is skipped without CUDA"
_OF_NUMBERED = "compares a test's parameter with a numbered CUDA device; decide which devices to test"
_NUMBERED = re.compile(r"[\"']cuda:[1-9]")
_CUDA_TEXT = re.compile(r"[\"']cuda")
OF_OTHERS = "checks for one of several accelerators by name, which is correct on every machine"
_OF_BUILD = "checks how torch was built"
_OF_FUNCTION = "the result of {}()"
_ANSWER = re.compile(
    r"^\W*(not )?(available|yes|no|enabled|disabled|found|present|supported|installed|true|false)\W*$", re.IGNORECASE
)
_SAYS_CPU = re.compile(r"\bcpu\b", re.IGNORECASE)
_SHOWN = re.compile(r"^(print|.*\.(info|debug|warn|warning|warn_once|warning_once|error|log|write|flush|format))$")
_LISTS_MESSAGE = re.compile(r"""^[\w.]+\.append\(\s*f?["']CUDA [\w ]""")  # of texts that are shown together
_COLLECTS = re.compile(r"\.(append|extend)$")
_NAMES_CUDA = re.compile(r"cuda|nvidia|nvml", re.IGNORECASE)
_OTHER = re.compile(r"\b(xpu|npu|hpu|mlu|musa|sdaa)\b|is_(torch_)?(xpu|npu|hpu|mlu|musa|sdaa)_available")
_BUILDS = ("torch.version.cuda", "torch.version.hip", "torch._C._cuda_getCompiledVersion")
_ASKS = re.compile(
    r"^_?((is|has|num|count|get_num)_(\w+_)?(cuda|rocm|nvidia)|(check_)?(cuda|rocm)_\w*(available|availability|count)$"
    r"|(check|detect|probe|try)_(cuda|rocm|nvidia)$"
    r"|(is|has|supports?)_\w*(flash|triton|apex|bnb|bitsandbytes|tensorrt|cutlass)"
    r"|(is|has)_(?!accelerator|device|gpu)\w+_available$|(assert|requires?|ensure|needs?|skip\w*)_(\w+_)?cuda)"
)
_ASKS_OF_CLASS = re.compile(r"^_?(is|has|can|supports?)_")
_FOR_CUDA = re.compile(r"Cuda|CUDA|Triton|Flash|TensorRT|Apex|Cutlass|Nvidia|NVIDIA")
_OF_SKIP = "a test that is skipped without CUDA, as its message says"
_OF_ENTRY = "the entry for CUDA, in a dictionary with entries for other devices"
_KINDS = {"xpu", "npu", "hpu", "mps", "mlu", "musa", "tpu"}


def decide(plan: Plan) -> None:
    """Leave the questions that are correct as they are."""
    decide_nested_requests(plan)
    decide_requests(plan)
    leave_data_parallel(plan)
    leave_meant_for_cuda(plan)
    builds = [node for node, name in plan.view.imported.items() if name in _BUILDS]
    for both in plan.view.of(cst.BooleanOperation):
        _decide_list(plan, both)
        if any(plan.view.is_within(node, both) for node in builds):
            leave_questions(plan, both, _OF_BUILD)
    for choice in plan.view.of(cst.IfExp):
        if all(_ANSWER.match(text_of(each) or "") for each in (choice.body, choice.orelse)):
            leave_questions(plan, choice.test, OF_MESSAGE)
    _decide_skips(plan)
    for test in plan.view.of(cst.If):
        is_no = any(text_of(each) == "No CUDA" for each in plan.view.inside(test.body, cst.SimpleString))
        if is_no or _only_tells(plan, test):
            leave_questions(plan, test, OF_MESSAGE)
        if _only_collects(plan, test):
            leave_names(plan, test.test, OF_MESSAGE)
    for listed in plan.view.of(cst.Dict):
        entries = [each for each in listed.elements if isinstance(each, cst.DictElement)]
        of_cuda = next((each for each in entries if text_of(each.key) == "cuda"), None)
        for entry in entries:
            if "cuda" in (text_of(entry.key) or "").lower() and _only_counts(plan, entry.value):
                leave_questions(plan, entry.value, OF_MESSAGE)
        kinds = {text_of(each.key) for each in entries} & _KINDS
        named = [] if of_cuda is None else [plan.view.name(each) for each in plan.view.inside(of_cuda, cst.Attribute)]
        calls_cuda = any(each.startswith("torch.cuda.") for each in named)
        if kinds == {"mps"} and not calls_cuda and _is_asked_by_device(plan, listed):
            continue  # another device has no entry
        if of_cuda is not None and kinds and plan.is_open(of_cuda.key):
            plan.leave(of_cuda.key, "device-name", _OF_ENTRY)
            leave_names(plan, of_cuda.value, _OF_ENTRY)
    for function in plan.view.of(cst.FunctionDef):
        _decide_function(plan, function)
    for asserted in plan.view.of(cst.Assert):
        is_asked = asserted.msg is not None and _ASKED_FOR.search(plan.view.code(asserted.msg)) is not None
        around = list(takewhile(lambda each: not isinstance(each, cst.FunctionDef), plan.view.ancestors(asserted)))
        if is_asked and any(isinstance(each, cst.If) for each in around):
            leave_questions(plan, asserted.test, OF_REQUEST)
    for call in plan.view.of(cst.Call):
        if asks_availability(plan.view, call) and (_says_cuda(plan, call) or _is_only_said(plan, call)):
            leave_questions(plan, call, OF_MESSAGE)
    for text in plan.view.of(cst.FormattedString):
        shown = "".join(part.value for part in text.parts if isinstance(part, cst.FormattedStringText))
        if "torch.cuda." in shown:
            leave_questions(plan, text, OF_MESSAGE)


def _decide_list(plan: Plan, either: cst.BooleanOperation) -> None:
    """Leave the CUDA operand of ``(xpu.is_available() and …) or (cuda.is_available() and …)``: each device has its own.

    If the operands only ask whether there is an accelerator, :mod:`.choices` has already merged them into one question.
    """
    sides = (either.left, either.right)
    if not isinstance(either.operator, cst.Or):
        return
    for side, other in (sides, sides[::-1]):
        asked = plan.view.code(other)
        if _OTHER.search(asked) and not _OTHER.search(plan.view.code(side)):
            leave_questions(plan, side, OF_OTHERS)


def _only_tells(plan: Plan, test: cst.If) -> bool:
    """Return whether an ``if`` only shows messages that name CUDA; they are true on other devices too.

    Not one that says that the CPU is used, as another device may be.
    """
    other = test.orelse
    if asks_availability(plan.view, test.test) is False and _SAYS_CPU.search(plan.view.code(test.body)):
        return False
    if isinstance(other, cst.If) or "torch.cuda" not in " ".join(_names_asked(plan, test.test)):
        return False
    for line in [*test.body.body, *(other.body.body if other is not None else ())]:
        statements = line.body if isinstance(line, cst.SimpleStatementLine) else [line]
        for each in statements:
            call = each.value if isinstance(each, cst.Expr) else None
            is_shown = isinstance(call, cst.Call) and _SHOWN.match(dotted(call.func) or "") is not None
            is_shown |= isinstance(call, cst.Call) and _LISTS_MESSAGE.match(plan.view.code(call)) is not None
            if is_shown and plan.view.code(each).strip().endswith(".flush()"):
                continue
            if not is_shown or not _NAMES_CUDA.search(plan.view.code(each).replace("torch.cuda", "")):
                return False
    return True


def _only_collects(plan: Plan, test: cst.If) -> bool:
    """Return whether an ``if`` only adds texts about CUDA to a list: ``if "cuda" in device: hints.extend(["Install CUDA"])``."""
    lines = [
        each for line in test.body.body for each in (line.body if isinstance(line, cst.SimpleStatementLine) else [line])
    ]
    calls = [each.value if isinstance(each, cst.Expr) else None for each in lines]
    texts: list[str] = []
    for call in calls:
        if not isinstance(call, cst.Call) or not _COLLECTS.search(dotted(call.func) or "") or len(call.args) != 1:
            return False
        given = call.args[0].value
        added = [each.value for each in given.elements] if isinstance(given, cst.List | cst.Tuple) else [given]
        if not all(isinstance(each, cst.SimpleString | cst.FormattedString | cst.ConcatenatedString) for each in added):
            return False
        texts += [plan.view.code(each) for each in added]
    return test.orelse is None and any(" " in each and _NAMES_CUDA.search(each) for each in texts)


def _names_asked(plan: Plan, where: cst.CSTNode) -> list[str]:
    """Return the full names from ``torch.cuda`` that a node mentions."""
    inside = plan.view.inside(where, cst.Attribute, cst.Name)
    return [name for each in inside if (name := plan.view.name(each)).startswith("torch.cuda")]


def _is_asked_by_device(plan: Plan, table: cst.Dict) -> bool:
    """Return whether a dictionary is read by a device's type: ``THRESHOLDS[device.type]``."""
    made, function = plan.view.parent(table), plan.view.function_around(table)
    targets = made.targets if isinstance(made, cst.Assign) else (made,) if isinstance(made, cst.AnnAssign) else ()
    names = {(dotted(each.target) or "").rpartition(".")[2] for each in targets}
    is_of_object = any(isinstance(each.target, cst.Attribute) for each in targets)
    places = [] if function is None or is_of_object else [function]
    read = [each for each in plan.view.of(cst.Subscript) if plan.view.code(each.slice[0]).endswith(".type")]
    read = [each for each in read if all(plan.view.is_within(each, place) for place in places)]
    return any(each.value is table or (dotted(each.value) or "").rpartition(".")[2] in names for each in read)


def _decide_function(plan: Plan, function: cst.FunctionDef) -> None:
    """Leave the questions in ``is_cuda_available()`` and the like, and the parameters of tests that skip CUDA."""
    owner = plan.view.class_around(function)
    is_of_class = isinstance(owner, cst.ClassDef) and _FOR_CUDA.search(owner.name.value) is not None
    if _ASKS.match(function.name.value) or (is_of_class and _ASKS_OF_CLASS.match(function.name.value)):
        leave_names(plan, function.body, _OF_FUNCTION.format(function.name.value))
        for each in plan.view.inside(function.body, cst.Attribute):
            if each.attr.value == "is_cuda" and plan.is_open(each) and isinstance(plan.view.parent(each), cst.Return):
                plan.leave(each, "is-cuda", _OF_FUNCTION.format(function.name.value))
    is_skipping = any(
        decision.reason == OF_REQUEST and plan.view.is_within(node, function.body)
        for node, decision in plan.decisions.items()
    )
    for decorator in function.decorators:
        call = decorator.decorator
        if not isinstance(call, cst.Call) or not (dotted(call.func) or "").endswith("parametrize"):
            continue
        if not is_skipping and _NUMBERED.search(plan.view.code(call)):
            _report_parameter(plan, function, call)
        elif is_skipping:
            for text in plan.view.inside(call, cst.SimpleString):
                if is_device_literal(text) and plan.is_open(text):
                    plan.leave(text, "device-name", _OF_PARAMETER)
            named = _parameters(call)
            for comparison in plan.view.inside(function.body, cst.Comparison):
                sides = (comparison.left, *(each.comparator for each in comparison.comparisons))
                if dotted(sides[0]) in named and any(is_device_literal(side) for side in sides[1:]):
                    plan.leave(comparison, "device-name", _OF_PARAMETER)
                    plan.claim(*sides)


def _report_parameter(plan: Plan, function: cst.FunctionDef, call: cst.Call) -> None:
    """Report comparisons of a test's parameter that is a numbered CUDA device: other devices have no such numbers."""
    named = _parameters(call)
    for asked in plan.view.inside(function.body, cst.Comparison, cst.Call):
        is_prefix = isinstance(asked, cst.Call) and (dotted(asked.func) or "").removesuffix(".startswith") in named
        sides = [asked.left] if isinstance(asked, cst.Comparison) else [asked.func] if is_prefix else []
        if sides and (is_prefix or dotted(sides[0]) in named) and _CUDA_TEXT.search(plan.view.code(asked)):
            plan.report(asked, "device-name", _OF_NUMBERED)
            plan.claim(*asked.children)


def _parameters(call: cst.Call) -> list[str]:
    return re.findall(r"\w+", text_of(call.args[0].value) or "") if call.args else []


def _says_cuda(plan: Plan, answer: cst.CSTNode) -> bool:
    told = _told(plan, answer)
    return told is not None and "cuda" in plan.view.code(told).replace(plan.view.code(answer), "", 1).lower()


def _only_counts(plan: Plan, value: cst.BaseExpression) -> bool:
    """Return whether a value says nothing but how many devices CUDA has: ``torch.cuda.device_count() if … else 0``."""
    if isinstance(value, cst.Call) and dotted(value.func) in ("int", "str") and len(value.args) == 1:
        return _only_counts(plan, value.args[0].value)
    if isinstance(value, cst.IfExp):
        is_asked = asks_availability(plan.view, value.test) is True
        return is_asked and _only_counts(plan, value.body) and isinstance(value.orelse, cst.Integer | cst.Name)
    return isinstance(value, cst.Call) and plan.view.name(value.func) == "torch.cuda.device_count"


def _is_only_said(plan: Plan, call: cst.CSTNode) -> bool:
    """Return whether an answer is stored under a name that is used in nothing but messages about CUDA, or a key that is."""
    around = plan.view.parent(call)
    owner = plan.view.parent(around) if isinstance(around, cst.Arg) else None
    if isinstance(owner, cst.Call) and dotted(owner.func) in ("str", "bool"):
        return _is_only_said(plan, owner)
    key = around.targets[0].target if isinstance(around, cst.Assign) else None
    if isinstance(key, cst.Subscript) and "cuda" in plan.view.code(key.slice[0]).lower():
        return True
    target = around.targets[0].target if isinstance(around, cst.Assign) and len(around.targets) == 1 else None
    uses = plan.view.uses(target) if target is not None else None
    is_recorded = _RECORDED.search(dotted(target) or "") is not None if target is not None else False
    is_given = all(isinstance(plan.view.parent(use), cst.Arg) for use in uses or ())
    return bool(uses) and ((is_recorded and is_given) or all(_says_cuda(plan, use) for use in uses or ()))


def _told(plan: Plan, asked: cst.CSTNode) -> cst.CSTNode | None:
    """Return the f-string, ``print`` call, logger call or labelled entry that contains an answer; None if there is none."""
    around = plan.view.parent(asked)
    for inner in plan.view.ancestors(asked):
        if isinstance(inner, cst.DictElement) and "cuda" in (text_of(inner.key) or "").lower():
            return inner
        if isinstance(inner, cst.Dict) and "torch.version.cuda" in plan.view.code(inner):
            return inner  # what is known about CUDA
        if isinstance(inner, cst.Call) and any("cuda" in (text_of(each.value) or "").lower() for each in inner.args):
            return inner
        if isinstance(inner, cst.Tuple) and any(
            "cuda" in (text_of(each.value) or "").lower() for each in inner.elements
        ):
            return inner
        is_number = isinstance(inner, cst.IfExp) and isinstance(inner.body, cst.Integer)  # 1 if … else 0
        is_torch = isinstance(inner, cst.BooleanOperation) and dotted(inner.left) == "torch"  # torch and torch.cuda…
        if isinstance(inner, cst.BaseStatement | cst.BaseSmallStatement | cst.BooleanOperation) and not is_torch:
            break
        if isinstance(inner, cst.IfExp) and not is_number:
            break
    if isinstance(around, cst.FormattedStringExpression):
        return plan.view.parent(around)
    call = plan.view.parent(around) if isinstance(around, cst.Arg) else None
    return call if isinstance(call, cst.Call) and _SHOWN.match(dotted(call.func) or "") else None


def _decide_skips(plan: Plan) -> None:
    """Leave the questions of skipped tests whose message or comment names CUDA, GPUs or the CPU."""
    for call in plan.view.of(cst.Call):
        asked, told = call.args[:1], call.args[1:]
        is_skip = (dotted(call.func) or "").rpartition(".")[2] in _SKIPS
        if is_skip and told and _SAYS_CUDA.search(" ".join(plan.view.code(each) for each in told)):
            leave_names(plan, asked[0], _OF_SKIP)
            _leave_counts(plan, asked[0])
        block = next((each for each in plan.view.ancestors(call) if isinstance(each, cst.BaseSuite)), None)
        if _REASONS.search(dotted(call.func) or "") and _SAYS_CUDA.search(plan.view.code(call)) and block is not None:
            leave_questions(plan, block, _OF_SKIP)
    for test in plan.view.of(cst.If):
        if _is_skip(plan, test) or _is_marked(plan, test):
            leave_questions(plan, test.test, _OF_SKIP)


def _leave_counts(plan: Plan, condition: cst.CSTNode) -> None:
    """Leave how many devices CUDA has, if nothing reads it but the conditions of skipped tests."""
    for name in plan.view.inside(condition, cst.Name):
        uses = [use for bound in plan.view.bindings_of(name) for use in plan.view.uses(bound) or ()]
        calls = [[each for each in plan.view.ancestors(use) if isinstance(each, cst.Call)] for use in uses]
        read = {each.attr.value for each in plan.view.of(cst.Attribute)} | plan.project.brought
        is_shared = not uses or name.value in read
        if not is_shared and all(
            any((dotted(each.func) or "").rpartition(".")[2] in _SKIPS for each in around) for around in calls
        ):
            for value in plan.view.values_of(name):
                leave_questions(plan, value, _OF_SKIP)


def _is_skip(plan: Plan, test: cst.If) -> bool:
    """Return whether the body of an ``if`` only skips a test because CUDA is missing."""
    if test.orelse is not None or len(test.body.body) != 1:
        return False
    line = test.body.body[0]
    statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else line
    call = statement.value if isinstance(statement, cst.Expr | cst.Return) else getattr(statement, "exc", None)
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Call):
        call = call.func  # a decorator: return unittest.skip("needs CUDA")(test)
    is_skip = isinstance(call, cst.Call) and (dotted(call.func) or "").rpartition(".")[2] in _SKIPS
    return is_skip and _SAYS_CUDA.search(plan.view.code(statement)) is not None


def _is_marked(plan: Plan, test: cst.If) -> bool:
    """Return whether the comment on the line of an ``if`` mentions a skip, and CUDA, GPUs or the CPU."""
    header = getattr(test.body, "header", None)
    comment = header.comment.value if header is not None and header.comment is not None else ""
    return "skip" in comment.lower() and _SAYS_CUDA.search(comment) is not None
