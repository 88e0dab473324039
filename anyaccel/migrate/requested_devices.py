"""Conditions that check whether a requested CUDA device is there: correct on every machine, so they stay.

``device == "cuda" and not torch.cuda.is_available()`` asks whether the device that a user named can be used. Another
accelerator would make the question, or its answer, wrong.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .choices import asks_availability
from .device_text import WRITTEN, is_device_literal
from .kinds import DEVICE_NAME, passed_for
from .left_questions import is_of_availability, leave_names, leave_questions
from .positions import written
from .source_view import dotted, text_of
from .targets import parsed

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["OF_REQUEST", "decide_requests", "is_missing", "names_device"]

OF_REQUEST = "checks whether the requested CUDA device is available"
_FLAG = re.compile(r"(^|[._])(cuda|gpu)$")
_OWN_QUESTION = re.compile(r"^_?(is|has)_cuda_(\w+_)?available$")
_OF_CHECKPOINT = "loads a checkpoint on a machine without CUDA, which is correct on every machine"
_OF_FALLBACK = "asks for CUDA; without it, line {} chooses what the program does"
_OF_REFUSAL = "refuses the CPU only where CUDA is there"
_OF_STORED = "checks for an object that was stored on a CUDA device, which this machine does not have"
_CUDA_TEXT = re.compile(r"[\"']cuda")
_CHOSEN_HERE = re.compile(
    r"[\"']cuda|\.cuda\(|\b(device|accelerator)_name\("
)  # a device, or a default that is rewritten
_TELLS = re.compile(r"^(print|.*\.(info|debug|warn|warning|warn_once|warning_once|error|log|write|format))$")


def decide_requests(plan: Plan) -> None:
    """Leave the conditions that check for a requested device, and the names in them."""
    for both in plan.view.of(cst.BooleanOperation):
        _decide_request(plan, both)
    for choice in plan.view.of(cst.IfExp):
        is_none = any(isinstance(each, cst.Name) and each.value == "None" for each in (choice.body, choice.orelse))
        texts = {_device_of(plan, choice.body), _device_of(plan, choice.orelse)}
        if is_none and "cpu" in texts and _asks_for_any(plan, choice.test):
            leave_questions(plan, choice.test, _OF_CHECKPOINT)
        if _is_of_request(plan, choice):
            leave_questions(plan, choice.test, OF_REQUEST)
        else:
            _decide_own_default(plan, choice)
    for test in plan.view.of(cst.If):
        _decide_fallback(plan, test)
        if not _CHOSEN_HERE.search(plan.view.source) and _is_fallback(plan, test):
            leave_questions(plan, test.test, OF_REQUEST)
        if _refuses_cpu(plan, test):
            leave_questions(plan, test.test, _OF_REFUSAL)


def _asks_for_any(plan: Plan, test: cst.BaseExpression) -> bool:
    """Return whether a test is ``torch.cuda.is_available()``, its negation, or a comparison of the number of devices."""
    counted = test.left if isinstance(test, cst.Comparison) else None
    is_count = isinstance(counted, cst.Call) and plan.view.name(counted.func) == "torch.cuda.device_count"
    return is_count or asks_availability(plan.view, test) is not None


def _decide_fallback(plan: Plan, test: cst.If) -> None:
    """Leave ``if device == "cuda" and torch.cuda.is_available(): …``, ``elif device == "cuda":``: the second falls back."""
    both, other = test.test, test.orelse
    if (
        not isinstance(both, cst.BooleanOperation)
        or not isinstance(both.operator, cst.And)
        or not isinstance(other, cst.If)
    ):
        return
    found = [each for each in (both.left, other.test) if isinstance(each, cst.Comparison)]
    names = {dotted(each.left) for each in found}
    are_of_cuda = all(_CUDA_TEXT.search(plan.view.code(each)) and plan.is_open(each) for each in found)
    if len(found) == 2 and len(names) == 1 and None not in names and are_of_cuda and _asks_for_any(plan, both.right):
        for each in found:
            plan.leave(each, "device-name", OF_REQUEST)
            plan.claim(each.comparisons[0].comparator)
        leave_questions(plan, both.right, OF_REQUEST)


def _decide_request(plan: Plan, both: cst.BooleanOperation) -> None:
    """Leave ``device == "cuda" and not torch.cuda.is_available()``, whose operands belong together.

    The same holds for ``args.cuda and not torch.cuda.is_available()``, which says that CUDA was asked for.
    """
    lacks_cuda = is_missing(plan, both.right)
    named = both.left
    if lacks_cuda and isinstance(both.operator, cst.And) and _FLAG.search((dotted(named) or "").lower()):
        leave_questions(plan, both.right, OF_REQUEST)
    is_named = isinstance(named, cst.Comparison) and len(named.comparisons) == 1
    if isinstance(both.operator, cst.And) and lacks_cuda and is_named and isinstance(named, cst.Comparison):
        sides = (named.left, named.comparisons[0].comparator)
        is_equal = isinstance(named.comparisons[0].operator, cst.Equal | cst.In)
        is_of_cuda = any((text_of(side) or "").startswith("cuda") for side in sides)
        if is_equal and is_of_cuda and plan.is_open(named) and not _is_chosen(plan, named.left):
            plan.leave(named, "device-name", OF_REQUEST)
            plan.claim(*sides)
            leave_questions(plan, both.right, OF_REQUEST)
            test = plan.view.parent(both)
            if isinstance(test, cst.If) and test.test is both and not _only_falls_back(plan, test, named.left):
                _leave_requested(plan, named.left, plan.view.position(test)[0])
    _decide_other_order(plan, both)


def _decide_other_order(plan: Plan, both: cst.BooleanOperation) -> None:
    """Leave ``not torch.cuda.is_available() and device == "cuda"``, in which a device that was asked for is missing."""
    has_missing = any(is_missing(plan, each) for each in (both.left, both.right))
    if not isinstance(both.operator, cst.And) or not has_missing:
        return
    if names_device(plan, both):
        leave_names(plan, both, OF_REQUEST)
    elif any(_is_of_stored(plan, each) for each in (both.left, both.right)):
        leave_questions(plan, both, _OF_STORED)


def _is_of_request(plan: Plan, choice: cst.IfExp) -> bool:
    """Return whether ``device if torch.cuda.is_available() else "cpu"`` keeps a device that a caller has asked for.

    A caller who asks for CUDA gets the CPU on a machine without it, and so does a configuration that names CUDA. Any other
    accelerator would make that an error, so the question stays, unless the device is this program's own default for CUDA,
    which is rewritten, or one of its options.
    """
    is_there = asks_availability(plan.view, choice.test)
    if is_there is None and any(is_of_availability(plan, each) for each in plan.view.values_of(choice.test)):
        is_there = True  # `cuda = not cpu and torch.cuda.is_available()`, asked by its name
    asked, other = (choice.body, choice.orelse) if is_there else (choice.orelse, choice.body)
    name = _last_name(asked)
    is_device = DEVICE_NAME.search(name) is not None or name.endswith("map_location")
    if is_there is None or _device_of(plan, other) != "cpu" or not is_device:
        return False
    parameter = plan.view.parameter(asked)
    values = [each for each in plan.view.values_of(asked) if each is not choice]
    if parameter is not None:
        values += _own_devices(plan, parameter)
    is_elsewhere = not values and (isinstance(asked, cst.Name) or name not in plan.project.settings)
    return not any(is_device_literal(each) for each in values) and (parameter is not None or is_elsewhere)


def _own_devices(plan: Plan, parameter: cst.Param) -> list[cst.BaseExpression]:
    """Return the default of a parameter, what this file passes for it, and the default of a parameter that is passed on."""
    passed = passed_for(plan.view, parameter)
    further = [plan.view.parameter(each) for each in passed]
    defaults = [each.default for each in (parameter, *further) if each is not None]
    return [*passed, *(each for each in defaults if each is not None)]


def _decide_own_default(plan: Plan, choice: cst.IfExp) -> None:
    """Rewrite the test of ``device if torch.cuda.is_available() else "cpu"`` for a parameter ``device: str = "cuda"``.

    Proof: ``torch.device(device).type`` is the accelerator's name for each name of its devices. On CUDA and on a CPU the
    same device is chosen as before, and on another accelerator a caller's ``"cuda"`` still becomes the CPU.
    """
    is_there, name = asks_availability(plan.view, choice.test), plan.device_name()
    asked, other = (choice.body, choice.orelse) if is_there else (choice.orelse, choice.body)
    is_made = isinstance(asked, cst.Call) and plan.view.name(asked.func) == "torch.device" and len(asked.args) == 1
    asked = asked.args[0].value if is_made and isinstance(asked, cst.Call) else asked
    parameter = plan.view.parameter(asked) if isinstance(asked, cst.Name) else None
    if is_there is None or name is None or parameter is None or parameter.default is None:
        return
    if _device_of(plan, other) != "cpu":
        return
    is_text = parameter.annotation is not None and dotted(parameter.annotation.annotation) == "str"
    before = [each for each in plan.view.values_of(asked) if not plan.view.is_within(choice, each)]
    values = [each for each in before if each is not parameter.default]
    if is_text and is_device_literal(parameter.default) and not values and plan.is_open(choice.test):
        test = (
            f"torch.device({plan.view.code(asked)}).type {'==' if is_there else '!='} {written(plan.view.module, name)}"
        )
        plan.needs_torch = True
        plan.rewrite(choice.test, "runtime-call", lambda _: parsed(test), (choice.test, *choice.test.children))
        plan.exact[choice.test] = choice.test


def _last_name(node: cst.BaseExpression) -> str:
    """Return ``device`` for ``args.device`` and for ``config["device"]``."""
    inside = node.slice[0].slice if isinstance(node, cst.Subscript) else None
    key = text_of(inside.value) if isinstance(inside, cst.Index) else None
    return (key or (dotted(node) or "").rpartition(".")[2]).lower()


def _device_of(plan: Plan, node: cst.BaseExpression) -> str | None:
    """Return ``"cpu"`` for ``"cpu"`` and for ``torch.device("cpu")``; None if there is no string."""
    is_made = isinstance(node, cst.Call) and plan.view.name(node.func) == "torch.device" and len(node.args) == 1
    return text_of(node.args[0].value if is_made and isinstance(node, cst.Call) else node)


def is_missing(plan: Plan, test: cst.BaseExpression) -> bool:
    """Return whether a test is true without CUDA: ``not torch.cuda.is_available()``, or ``not`` a name that holds that."""
    if not isinstance(test, cst.UnaryOperation) or not isinstance(test.operator, cst.Not):
        return False
    values = plan.view.values_of(test.expression) or [test.expression]
    return all(
        asks_availability(plan.view, each) is True or _is_of_other_torch(each) or _is_of_program(each)
        for each in values
    )


def _is_of_other_torch(test: cst.BaseExpression) -> bool:
    """Return whether a question is asked of torch under a name that the tool does not follow: ``self.torch.cuda``."""
    return isinstance(test, cst.Call) and (dotted(test.func) or "").endswith(".cuda.is_available")


def _is_of_program(test: cst.BaseExpression) -> bool:
    """Return whether a question is the program's own: ``is_cuda_provider_available()``."""
    called = (dotted(test.func) or "").rpartition(".")[2] if isinstance(test, cst.Call) else ""
    return _OWN_QUESTION.match(called) is not None


def _is_of_stored(plan: Plan, test: cst.BaseExpression) -> bool:
    """Return whether a test is ``x.device.type != "cpu"``, of an object that may come from a machine with CUDA."""
    target = test.comparisons[0] if isinstance(test, cst.Comparison) else None
    is_other = target is not None and isinstance(target.operator, cst.NotEqual) and text_of(target.comparator) == "cpu"
    return is_other and isinstance(test, cst.Comparison) and (dotted(test.left) or "").endswith(".device.type")


def names_device(plan: Plan, test: cst.BaseExpression) -> bool:
    """Return whether a condition names a CUDA device, which a name has that this program does not choose itself."""
    compared = list(plan.view.inside(test, cst.Comparison))
    is_other = any(isinstance(each.comparisons[0].operator, cst.NotEqual | cst.NotIn) for each in compared)
    is_asked = not is_other and not any(_is_chosen(plan, each.left) for each in compared)
    return is_asked and any(map(is_device_literal, plan.view.inside(test, cst.SimpleString)))


def _is_chosen(plan: Plan, device: cst.BaseExpression) -> bool:
    """Return whether a name holds ``"cuda" if torch.cuda.is_available() else "cpu"``: nobody asked for that device.

    So does one that holds what an earlier run made of that.
    """
    values = plan.view.values_of(device)
    choices = (each for each in values if isinstance(each, cst.IfExp))
    is_choice = any(asks_availability(plan.view, each.test) is not None for each in choices)
    return is_choice or any(WRITTEN.search(plan.view.code(each)) for each in values)


def _only_falls_back(plan: Plan, test: cst.If, device: cst.BaseExpression) -> bool:
    """Return whether the body of an ``if`` does nothing but assign another device, or stop, and tell about it."""
    for line in test.body.body:
        for each in line.body if isinstance(line, cst.SimpleStatementLine) else [line]:
            call = each.value if isinstance(each, cst.Expr) else None
            is_told = isinstance(call, cst.Call) and _TELLS.match(dotted(call.func) or "") is not None
            is_set = isinstance(each, cst.Assign) and dotted(each.targets[0].target) == dotted(device)
            if not (is_told or is_set or isinstance(each, cst.Pass | cst.Raise)):
                return False
    return True


def _is_fallback(plan: Plan, test: cst.If) -> bool:
    """Return whether an ``if`` only goes on with the CPU without CUDA, in place of a device that comes from elsewhere.

    ``if not torch.cuda.is_available(): device = "cpu"``. A request for CUDA must find it: another accelerator is no answer.
    """
    if asks_availability(plan.view, test.test) is not False or test.orelse is not None:
        return False
    chosen = []
    for line in test.body.body:
        for each in line.body if isinstance(line, cst.SimpleStatementLine) else [line]:
            call = each.value if isinstance(each, cst.Expr) else None
            if isinstance(each, cst.Assign | cst.Return) and each.value is not None:
                chosen.append(_device_of(plan, each.value))
            elif not isinstance(call, cst.Call) or not _TELLS.match(dotted(call.func) or ""):
                return False
    return bool(chosen) and set(chosen) == {"cpu"}


def _refuses_cpu(plan: Plan, test: cst.If) -> bool:
    """Return whether an ``if`` raises where the CPU is asked for, and CUDA is there: other devices do not matter to it."""
    both = test.test
    if not isinstance(both, cst.BooleanOperation) or not isinstance(both.operator, cst.And) or test.orelse is not None:
        return False
    halves = (both.left, both.right)
    compared = [each for each in halves if isinstance(each, cst.Comparison) and len(each.comparisons) == 1]
    is_asked = any(asks_availability(plan.view, each) is True for each in halves)
    is_of_cpu = any(_device_of(plan, each.comparisons[0].comparator) == "cpu" for each in compared)
    lines = [line for line in test.body.body if isinstance(line, cst.SimpleStatementLine)]
    stops = bool(lines) and isinstance(lines[-1].body[-1], cst.Raise)
    return (
        is_asked
        and is_of_cpu
        and stops
        and all(isinstance(each.comparisons[0].operator, cst.Equal) for each in compared)
    )


def _leave_requested(plan: Plan, device: cst.BaseExpression, line: int) -> None:
    """Leave the names that a variable is set to, as what happens without CUDA is more than another device's name."""
    parameter = plan.view.parameter(device)
    default = [parameter.default] if parameter is not None and parameter.default is not None else []
    for value in (*plan.view.values_of(device), *default):
        if is_device_literal(value) and plan.is_open(value):
            plan.leave(value, "device-name", _OF_FALLBACK.format(line))
