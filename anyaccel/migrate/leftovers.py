"""The rule env: code that is specific to CUDA and stays, or that names CUDA in a way that no other rule handles."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import libcst as cst

from . import forked_generators
from .activities import decide_activity
from .choices import asks_availability
from .device_text import NAMES_NCCL, WRITTEN, spells_cuda
from .questions import OF_HANDLE, OF_WORD
from .site import SiteOutcome
from .source_view import dotted, text_of
from .targets import expression, parsed
from .values_of_cuda import decided_in

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide", "decide_pinned_factories"]

RULE = "env"
_LEFT = {
    "torch.backends.cudnn": "cuDNN's own switches, which other devices ignore",
    "torch.backends.cuda": "CUDA's own switches, which other devices ignore",
    "torch.version.cuda": "the version of CUDA that torch was built with; None where it was not",
}
_OF_EMPTY = {"", "dtype", "device", "pin_memory"}  # sizes, and what pin_empty() takes by name
_PLACED = re.compile(
    r"(\w+[_-])?(rank|worker|trainer|ps|node|(param(eter)?)?server|client|master)"
    r"(([:_-]\w+|\d+)?/cuda:\d+|[:_-]?\d+/cuda)$"
)
_FAILED = re.compile(r"CUDA (out of memory|error($|[:.,]))")
_HANDLES = ("cuda_stream", "cuda_event")
_FACTORY = re.compile(
    r"^(empty|zeros|ones|full|rand|randn|randint)(_like)?$|^(arange|empty_strided|eye|linspace|logspace|randperm|range|tensor)$"
)
_REPORTED = {
    "torch.profiler.ProfilerActivity.CUDA": "records CUDA's activity; use torch.profiler.supported_activities()",
    **dict.fromkeys(
        ("torch.profiler.DeviceType.CUDA", "torch.autograd.DeviceType.CUDA"),
        "the type of CUDA's events; compare with DeviceType.CPU, or decide what other devices count",
    ),
    "torch.utils.cpp_extension.CUDAExtension": "builds for CUDA only; anyaccel.op_builder builds for each device",
    "torch.backends.cuda.is_built": "checks how torch was built; compare get_accelerator().device_name() to check what is used",
}


def decide(plan: Plan) -> None:
    """Decide on every node that no other rule has decided on or claimed."""
    for node, name in plan.view.imported.items():
        around = plan.view.parent(node)
        if not plan.is_open(node) or (isinstance(around, cst.Attribute) and around.value is node):
            continue
        if name.endswith(".ProfilerActivity.CUDA") and decide_activity(plan, node):
            continue
        if _REPORTED.get(name):
            plan.report(node, RULE, _REPORTED[name], is_own=name.endswith("CUDAExtension"))
        else:
            reason = next((why for prefix, why in _LEFT.items() if f"{name}.".startswith(f"{prefix}.")), "")
            if reason:
                plan.leave(node, RULE, reason)
    for node in plan.view.of(cst.ImportFrom):
        if isinstance(node.names, cst.ImportStar) and plan.view.code(node).startswith("from torch.cuda"):
            plan.report(node, "imports", "imports unknown names; import what is used by name")
    forked_generators.decide(plan)
    for node in plan.view.of(cst.Attribute):
        if plan.is_open(node) and plan.is_open(plan.view.parent(node) or node):
            _decide_attribute(plan, node)
    for node in plan.view.of(cst.FormattedString, cst.SimpleString):
        if plan.is_open(node) and not _is_docstring(plan, node):
            _decide_unfinished(plan, node)
    for node in plan.view.of(cst.SimpleString):
        value = text_of(node)
        if value and "cuda" in value.lower() and plan.is_open(node) and not _is_docstring(plan, node):
            _decide_text(plan, node, value)


def _decide_attribute(plan: Plan, node: cst.Attribute) -> None:
    """Decide on ``x.cuda`` without a call, and on attributes whose names contain nccl."""
    name, around = node.attr.value, plan.view.parent(node)
    if any(isinstance(each, cst.Import | cst.ImportFrom) for each in plan.view.ancestors(node)):
        return  # handled by the rule imports
    if name in _HANDLES and plan.is_torch_imported:
        if any(one.outcome is SiteOutcome.REPORTED for one in decided_in(plan, node.value)):
            return  # the call that returns the stream
        plan.report(node, "streams", OF_HANDLE, is_own=True)
    elif NAMES_NCCL.search(name):
        plan.leave(node, "comm-backend", "NCCL's own, by its name")
    elif name == "cuda" and not (isinstance(around, cst.Call) and around.func is node):
        is_method = isinstance(around, cst.Arg) and around.keyword is None and plan.view.name(node).startswith("torch.")
        if is_method:
            plan.report(node, "tensor-cuda", "passes the method cuda as a value; pass lambda x: x.to(...)")
        elif not (isinstance(around, cst.Attribute) and plan.view.name(around)):
            plan.leave(node, RULE, "an attribute called cuda, such as an option")


def _decide_unfinished(plan: Plan, node: cst.BaseExpression) -> None:
    """Decide on device names that are built in a way that no rule handles, and on f-strings that mention CUDA."""
    if text_of(node) == "cuda:" and _is_of_parsing(plan, node):
        plan.leave(node, RULE, "parses a device's name")
    elif spells_cuda(node):
        reason = "builds a device's name in an unknown way; use get_accelerator().device_name(i)"
        plan.report(node, "device-name", reason)
    elif isinstance(node, cst.FormattedString):
        text = "".join(part.value for part in node.parts if isinstance(part, cst.FormattedStringText))
        if re.search(r"\bCUDA:[\d{]", plan.view.code(node)):
            plan.report(node, RULE, "shows the name of a CUDA device; show get_accelerator().device_name(i)")
        elif re.search("cuda|nccl", text, re.IGNORECASE):
            plan.leave(node, RULE, OF_WORD)


def _is_of_parsing(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a string is an argument of ``device.replace("cuda:", "")`` or a similar string method."""
    argument = plan.view.parent(node)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) else None
    method = call.func.attr.value if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) else ""
    return method in ("replace", "strip", "lstrip", "removeprefix", "split", "partition")


def _is_docstring(plan: Plan, node: cst.CSTNode) -> bool:
    return isinstance(plan.view.parent(node), cst.Expr)


def _is_asked_for(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a module is named to a function that says whether it can be imported: ``find_spec("torch.cuda.amp")``."""
    argument = plan.view.parent(node)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) else None
    called = (dotted(call.func) or "").rpartition(".")[2] if isinstance(call, cst.Call) else ""
    return called == "find_spec" or called.endswith("_available")


def _decide_text(plan: Plan, node: cst.SimpleString, value: str) -> None:
    if value.startswith("torch.cuda") and _is_asked_for(plan, node):
        plan.leave(node, RULE, "asks which version of torch this is; torch.cuda can be imported on every machine")
    elif value.startswith("torch.cuda"):
        plan.report(node, RULE, "names torch.cuda in a string; check what reads the string")
    elif _PLACED.match(value):
        plan.report(node, "device-name", "a rank's or a worker's CUDA device; decide which device of its own it names")
    elif _FAILED.match(value) and _is_asked_for_error(plan, node):
        plan.report(
            node, RULE, "asks for an error of CUDA's; other devices' texts differ: ask for torch.OutOfMemoryError"
        )
    elif value == "CUDA_VISIBLE_DEVICES":
        plan.leave(node, RULE, "CUDA's own variable; get_accelerator().visible_devices_envs() has this device's")
    else:
        plan.leave(node, RULE, OF_WORD)


def _is_asked_for_error(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a text is looked for in an error's: ``"CUDA out of memory" in str(error)``."""
    around = plan.view.parent(node)
    call = plan.view.parent(around) if isinstance(around, cst.Arg) else None
    method = call.func.attr.value if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) else ""
    is_compared = isinstance(around, cst.Comparison | cst.ComparisonTarget)
    return is_compared or method in ("startswith", "find", "index", "search", "match")


def decide_pinned_factories(plan: Plan) -> None:
    """Apply the rule pinning to ``torch.empty(…, pin_memory=True)``; DataLoader's flag is left as it is."""
    for call in plan.view.of(cst.Call):
        name = plan.view.name(call.func)
        flag = next((arg for arg in call.args if arg.keyword and arg.keyword.value == "pin_memory"), None)
        if flag is None:
            continue
        if name.startswith("torch.") and not name.startswith("torch.utils"):
            _decide_factory(plan, call, flag, name.rpartition(".")[2])


def _questions_in(plan: Plan, flag: cst.BaseExpression) -> list[cst.CSTNode]:
    """Return the questions about CUDA that a flag is, itself or by all values of its name; empty for any other flag."""
    values = plan.view.values_of(flag) if isinstance(flag, cst.Name) else [flag]
    is_asked = [
        each in plan.questions or (isinstance(each, cst.Attribute) and each.attr.value == "is_cuda") for each in values
    ]
    return list(values) if plan.view.parameter(flag) is None and is_asked and all(is_asked) else []


def _decide_offload(plan: Plan, flag: cst.Arg) -> None:
    """Let FSDP pin what it offloads on an accelerator only: torch refuses that on a CPU, so it failed there before."""
    name, value = plan.named(), flag.value
    if '() != "cpu"' in plan.view.code(value) or dotted(value) == "False":  # also in an earlier run
        return
    is_weak = isinstance(value, cst.BooleanOperation | cst.IfExp | cst.Lambda) and not value.lpar

    def build(updated: cst.Arg) -> cst.Arg:
        rest: Any = updated.value
        if dotted(value) == "True":
            return updated.with_changes(value=expression('{name} != "cpu"', name=name))
        rest = rest.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()]) if is_weak else rest
        return updated.with_changes(value=expression('{rest} and {name} != "cpu"', name=name, rest=rest))

    plan.rewrite(flag, "pinning", build)


def _decide_factory(plan: Plan, call: cst.Call, flag: cst.Arg, name: str) -> None:
    if name == "save_on_cpu":
        plan.leave(flag, "pinning", "pins only where its device is there, and copies without pinning elsewhere")
        return
    if name == "CPUOffloadPolicy" and plan.device_name() is not None:
        _decide_offload(plan, flag)
        return
    given = {each.keyword.value if each.keyword else "" for each in call.args}
    pins_empty = name == "empty" and given | {"device"} == _OF_EMPTY
    function = plan.function("pin_empty" if pins_empty else "pin_memory")
    if not _FACTORY.match(name) and plan.view.code(flag.value).endswith(".is_pinned()"):
        plan.leave(flag, "pinning", "as another tensor is")
        return
    if not _FACTORY.match(name):
        plan.report(flag, "pinning", f"{name}() pins memory, which torch refuses without a device; pass False on a CPU")
        return
    device = next((arg.value for arg in call.args if arg.keyword and arg.keyword.value == "device"), None)
    if name == "tensor" and device is not None and text_of(device) != "cpu":
        plan.report(flag, "pinning", "is pinned and then moved, unless the device is the CPU; pin a tensor on the CPU")
        return
    is_pinned = isinstance(flag.value, cst.Name) and flag.value.value == "True"
    is_pinned |= asks_availability(plan.view, flag.value) is True  # the accelerator's pin_memory() asks that itself
    asked = _questions_in(plan, flag.value)
    if asked and not is_pinned:
        plan.must_be_exact.update(asked)  # then the flag is false on a CPU, as it was without CUDA
        return
    if WRITTEN.search(plan.view.code(flag.value)):  # by an earlier run
        plan.leave(flag, "pinning", "is false on a CPU, as it was without CUDA")
        return
    if not is_pinned or function is None:
        plan.report(flag, "pinning", "may pin memory; call get_accelerator().pin_memory(t) if this value is true")
        return
    place = call.args.index(flag)

    def build(updated: cst.Call) -> cst.CSTNode:
        kept = [arg for number, arg in enumerate(updated.args) if number != place]
        if kept:
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return cst.Call(parsed(function), kept if pins_empty else [cst.Arg(updated.with_changes(args=kept))])

    plan.rewrite(call, "pinning", build, (flag,))
