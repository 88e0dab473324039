"""Questions that stay because what they decide is CUDA's own: a library's option for CUDA, or CUDA's own switches.

Proof: nothing is rewritten. A CPU and other accelerators have the answer and the branch that they had, which runs there;
CUDA's branch could not run on them: it is for onnxruntime's provider for CUDA, for faiss, whose GPU is CUDA, for apex,
bitsandbytes or NVML, for a library with devices of its own such as TVM, or for the switches of cuDNN and of TF32, which
no other device reads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .choices import asks_availability
from .cuda_guards import guard_around
from .device_text import is_device_literal
from .left_questions import leave_names, leave_questions, leave_unless_stored
from .other_libraries import names_other_library
from .regions import following
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["leave_meant_for_cuda"]

_PROVIDER = re.compile(r"\b(CUDA|Tensorrt)ExecutionProvider\b")
_GPU = re.compile(r"(^|_)gpu$")
_SWITCHES = ("torch.backends.cuda.", "torch.backends.cudnn.")
_OF_PROVIDER = "decides whether onnxruntime uses its provider for CUDA"
_OF_ONNXRUNTIME = "compares with the device of onnxruntime, whose GPU is CUDA"
_OF_FAISS = "decides whether faiss uses a GPU, which is CUDA there"
_VENDOR = re.compile(r"\b(apex|bitsandbytes|nvml|pynvml|tensorrt)\b", re.IGNORECASE)
_NVML = re.compile(r"\b(pynvml|nvidia_smi|nvml\w*)\.\w+\(")
_OF_VENDOR = "a guard before a library that exists for CUDA alone"
_TELLS = re.compile(r"^(print|.*\.(info|debug|warn|warning|error|log))$")
_OF_LIBRARY = "sets up a library with devices of its own"
_OTHER = re.compile(r"(^|_)(sort|provider|engine)(_by)?$")
_OF_OPTION = "compares an option that is no device"
_ASKS = re.compile(r"is_(\w+_)?cuda_(device|tensor)$")
_NVIDIA_SMI = re.compile(r"\bwhich\(\s*[\"']nvidia-smi")
_OF_NVIDIA = "joined to a question for NVIDIA's driver"
_OF_NAMED = "joined to a question that is for CUDA by its name"
_NAMED = re.compile(r"(?<!\bnon)(?<!\bno)[_-]cuda$")
_USES = re.compile(r"\btorch\.cuda\b|\.cuda\(")
_OF_SWITCHES = "decides about cuDNN's and TF32's switches, which other devices do not read"


def leave_meant_for_cuda(plan: Plan) -> None:
    """Leave the questions that only decide what is CUDA's own."""
    for test in plan.view.of(cst.If, cst.IfExp):
        code = plan.view.code(test.body)
        if _PROVIDER.search(code) and "cuda" not in _PROVIDER.sub("", code):
            leave_unless_stored(plan, test.test, _OF_PROVIDER)
        elif isinstance(test, cst.If) and test.orelse is None and _only_switches(plan, test.body):
            leave_unless_stored(plan, test.test, _OF_SWITCHES)
    for both in plan.view.of(cst.BooleanOperation):
        if any(_is_switch(plan, each) for each in plan.view.inside(both, cst.Attribute)):
            leave_unless_stored(plan, both, _OF_SWITCHES)
        elif "onnxruntime.get_device()" in plan.view.code(both):
            leave_unless_stored(plan, both, _OF_ONNXRUNTIME)
        elif isinstance(both.operator, cst.And) and any(map(_names_cuda, plan.view.inside(both, cst.Call))):
            leave_unless_stored(plan, both, _OF_NAMED)
        elif _NVIDIA_SMI.search(plan.view.code(both)):
            leave_unless_stored(plan, both, _OF_NVIDIA)
    for asked in plan.view.of(cst.Comparison):
        if _OTHER.search(_compared(plan, asked)):
            leave_names(plan, asked, _OF_OPTION)
    for test in plan.view.of(cst.If):
        if _chooses_by_name(test.test) and not _USES.search(plan.view.code(test.body)):
            _leave_arguments(plan, test.body)
    for stop in plan.view.of(cst.Assert, cst.If):
        if _is_before_vendor(plan, stop):
            leave_questions(plan, stop.test, _OF_VENDOR)
        if isinstance(stop, cst.If) and _only_sets_up(plan, stop):
            leave_questions(plan, stop, _OF_LIBRARY)
            _leave_devices(plan, stop.body, _OF_LIBRARY)
    for call in plan.view.of(cst.Call):
        if "faiss" in (plan.view.name(call.func) or dotted(call.func) or "").lower():
            _decide_faiss(plan, call)


def _names_cuda(call: cst.Call) -> bool:
    """Return whether a function asks for CUDA by its name, and stays: ``is_cuda_device(device)``."""
    return isinstance(call.func, cst.Name) and _ASKS.match(call.func.value) is not None


def _chooses_by_name(test: cst.BaseExpression) -> bool:
    """Return whether a test is for an option with a name for CUDA: ``kind == "pytorch_cuda"``."""
    is_one = isinstance(test, cst.Comparison) and len(test.comparisons) == 1
    target = test.comparisons[0] if isinstance(test, cst.Comparison) and is_one else None
    is_equal = target is not None and isinstance(target.operator, cst.Equal)
    return is_equal and target is not None and _NAMED.search(text_of(target.comparator) or "") is not None


def _leave_arguments(plan: Plan, block: cst.CSTNode) -> None:
    """Leave the names of CUDA's devices that functions of this file get, which decide what they do with them."""
    for call in plan.view.inside(block, cst.Call):
        if isinstance(call.func, cst.Name) and call.func.value in plan.view.defined_names:
            for argument in call.args:
                _leave_devices(plan, argument, _OF_OPTION)


def _leave_devices(plan: Plan, block: cst.CSTNode, reason: str) -> None:
    for text in plan.view.inside(block, cst.SimpleString):
        if is_device_literal(text) and plan.is_open(text):
            plan.leave(text, "device-name", reason)


def _compared(plan: Plan, asked: cst.Comparison) -> str:
    """Return the name of what is compared: its key, as of ``args["sort"]``, or its last name."""
    inside = asked.left.slice[0].slice if isinstance(asked.left, cst.Subscript) else None
    key = text_of(inside.value) if isinstance(inside, cst.Index) else None
    return (key or (dotted(asked.left) or "").rpartition(".")[2]).lower()


def _is_switch(plan: Plan, node: cst.CSTNode) -> bool:
    return plan.view.name(node).startswith(_SWITCHES)


def _only_switches(plan: Plan, block: cst.BaseSuite) -> bool:
    """Return whether all that a block does is to set switches, by values that it computes from what it is given."""
    is_set = False
    for assigned in plan.view.inside(block, cst.SimpleStatementLine):
        for each in assigned.body:
            if not isinstance(each, cst.Assign) or len(each.targets) != 1:
                return False
            target = each.targets[0].target
            uses = plan.view.uses(target) if isinstance(target, cst.Name) else None
            is_within = bool(uses) and all(plan.view.is_within(use, block) for use in uses or ())
            if not _is_switch(plan, target) and not is_within:
                return False
            is_set |= _is_switch(plan, target)
    return is_set


def _is_before_vendor(plan: Plan, stop: cst.Assert | cst.If) -> bool:
    """Return whether a guard stops without CUDA before a library that exists for CUDA alone, by its message or its calls."""
    asked = [each for each in (stop.test, *stop.test.children) if asks_availability(plan.view, each) is True]  # type: ignore[arg-type]
    guard = guard_around(plan.view, asked[0]) if asked else None
    if guard is None or (isinstance(stop, cst.If) and not re.search(r"\braise\b", plan.view.code(stop.body))):
        return False
    calls = (plan.view.code(each) for each in following(plan.view, guard))
    return _VENDOR.search(plan.view.code(guard)) is not None or any(_NVML.search(each) for each in calls)


def _only_sets_up(plan: Plan, test: cst.If) -> bool:
    """Return whether all that is called where CUDA is there is a library with devices of its own: ``torch_tvm.enable(…)``."""
    calls = list(plan.view.inside(test.body, cst.Call))
    own = [each for each in calls if names_other_library(plan.view.name(each.func))]
    others = [each for each in calls if not any(plan.view.is_within(each, call) for call in own)]
    is_told = all(_TELLS.match(dotted(each.func) or "") for each in others)
    is_asked = asks_availability(plan.view, test.test) is True and test.orelse is None
    return bool(own) and is_told and is_asked and not any(plan.view.inside(test.body, cst.Assign))


def _decide_faiss(plan: Plan, call: cst.Call) -> None:
    """Leave the question whose answer ``faiss.Kmeans(…, gpu=answer)`` gets, also by a name that nothing else reads."""
    for argument in call.args:
        if argument.keyword is None or not _GPU.search(argument.keyword.value):
            continue
        leave_unless_stored(plan, argument.value, _OF_FAISS)
        for value in plan.view.values_of(argument.value) if isinstance(argument.value, cst.Name) else ():
            around = plan.view.parent(value)
            target = around.targets[0].target if isinstance(around, cst.Assign) and len(around.targets) == 1 else None
            uses = plan.view.uses(target) if target is not None else None
            if uses is not None and all(_is_for_faiss(plan, use) for use in uses):
                leave_names(plan, value, _OF_FAISS)


def _is_for_faiss(plan: Plan, use: cst.CSTNode) -> bool:
    around = plan.view.parent(use)
    call = plan.view.parent(around) if isinstance(around, cst.Arg) else None
    return isinstance(call, cst.Call) and "faiss" in (plan.view.name(call.func) or dotted(call.func) or "").lower()
