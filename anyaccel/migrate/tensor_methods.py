"""The rules tensor-cuda, pinning and record-stream: method calls on tensors and modules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .call_arguments import NO_SPACE
from .device_positions import KEYWORDS
from .device_text import index_in, is_device_literal
from .kinds import DEVICE_NAME, Kind, is_index_element, kind_of, told_index
from .own_members import own_member
from .source_view import dotted, text_of
from .targets import parsed

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide"]

RULE = "tensor-cuda"
_NUMBER_NAME = re.compile(r"(^|_)(rank|gpu|gpu_?id|device_?(id|idx|index))$")
_STREAM = re.compile(r"^[\w.]*streams?\b(\[.*\])?(\(\))?$")
_OF_KEPT_INDEX = "stores an index as a device, which only CUDA accepts; store get_accelerator().device_name(index)"
_OF_INDEX = r"([=!]=|[<>]=?|[\[{%]|\bint\(|format\(|\"cuda\",) *NAME\b|\bNAME *([=!]=|[<>]|in\b)"
_OF_FUNCTION = "calls a function cuda() of an import with arguments; call to() if that is a tensor or a module"
_OTHER_CUDA = ("numba.", "cupy.", "cv2.", "pycuda.", "jax.")


def decide(plan: Plan) -> None:
    """Decide on method calls on tensors and modules that are specific to CUDA."""
    for node in plan.view.of(cst.Call):
        if not isinstance(node.func, cst.Attribute) or not plan.is_open(node) or not plan.is_open(node.func):
            _decide_number_keyword(plan, node)
            continue
        method = node.func.attr.value
        if method == "cuda":
            _decide_cuda(plan, node)
        elif method == "pin_memory":
            _decide_pin(plan, node)
        elif method == "record_stream" and _is_of_tensor(plan, node):
            _as_member(plan, node, "record_stream", "streams")  # which calls that of another class, too
        elif method == "to" and node.args and (node.args[0].keyword is None or node.args[0].keyword.value == "device"):
            _decide_number(plan, node.args[0].value)
        _decide_number_keyword(plan, node)
    for node in plan.view.of(cst.Assign):
        names = [(dotted(each.target) or "").rpartition(".")[2].lower() for each in node.targets]
        if plan.is_torch_imported and DEVICE_NAME.search(names[0]) and is_index_element(node.value):
            _decide_kept_index(plan, node)
    for node in plan.view.of(cst.FunctionDef):
        if node.name.value == "cuda" and isinstance(plan.view.parent(plan.view.parent(node) or node), cst.ClassDef):
            _decide_own(plan, node)


def _decide_kept_index(plan: Plan, node: cst.Assign) -> None:
    """Name the device whose index is stored, if everything else that is stored under that attribute is a device.

    Proof: whoever reads the attribute takes a device, and on CUDA the name is of the device that the index was of. It is not
    compared, shown, or put in a list, as an index would be.
    """
    name = dotted(node.targets[0].target) or ""
    others = [each for each in plan.view.assigned.get(name, ()) if not is_index_element(each)]
    is_device = bool(others) and all(
        is_device_literal(each)
        or text_of(each) == "cpu"
        or (isinstance(each, cst.Call) and plan.view.name(each.func) == "torch.device")
        for each in others
    )
    is_index = re.search(_OF_INDEX.replace("NAME", re.escape(name)), plan.view.source) is not None
    if (
        len(node.targets) == 1
        and "." in name
        and is_device
        and not is_index
        and plan.device_name(node.value) is not None
    ):
        plan.rewrite(node.value, "device-name", plan.named)
    else:
        plan.report(node.value, "device-name", _OF_KEPT_INDEX)


def _decide_own(plan: Plan, method: cst.FunctionDef) -> None:
    """Decide on a class's own ``cuda()``: beside its own ``to()``, which takes every device, it is right as it is."""
    block = plan.view.parent(method)
    others = [each.name.value for each in getattr(block, "body", ()) if isinstance(each, cst.FunctionDef)]
    if any("property" in plan.view.code(each) for each in method.decorators):
        plan.leave(method.name, RULE, "a property, which moves nothing")
    elif "to" in others:
        plan.leave(method.name, RULE, "a class with its own cuda(), and its own to() for every device")
    else:
        plan.report(method.name, RULE, "a class with its own cuda(); add a to() method and call that")


def _is_of_tensor(plan: Plan, call: cst.Call) -> bool:
    """Return whether ``x.record_stream(s)`` receives a torch stream and not, say, the URL of a camera stream."""
    if len(call.args) != 1 or not plan.function("record_stream"):
        return False
    value = call.args[0].value
    told = [value, *plan.view.values_of(value)]
    is_made = any(isinstance(each, cst.Call) and plan.view.name(each.func).startswith("torch.") for each in told)
    return is_made or (plan.is_torch_imported and _STREAM.search(plan.view.code(value).lower()) is not None)


def _decide_cuda(plan: Plan, call: cst.Call) -> None:
    assert isinstance(call.func, cst.Attribute)  # noqa: S101  # checked by decide()
    name = plan.view.name(call.func)
    if name.startswith(_OTHER_CUDA):
        plan.leave(call, RULE, "another library's")
        return
    if name == "torch.Tensor.cuda":
        plan.report(call, RULE, "calls the method cuda as a function; write x.to(get_accelerator().device_name())")
        return
    if call.args and plan.view.name(call.func.value):
        plan.report(call, RULE, _OF_FUNCTION)
        return
    if _is_of_module(plan, call.func.value):
        plan.leave(call, RULE, "a function of another library's module")
        return
    args = list(call.args)
    given = [arg for arg in args if arg.keyword is None or arg.keyword.value == "device"]
    of_receiver, reason = (
        own_member(plan, call.func.value, "cuda", has_argument=bool(call.args)),
        _argument_reason(plan, call, given),
    )
    literals = tuple(arg.value for arg in given[:1] if is_device_literal(arg.value))
    if of_receiver and not reason:
        plan.report(call, RULE, of_receiver, "own-cuda", lambda updated: _to_device(plan, call, updated))
        plan.claim(*literals)
        return
    if reason:
        plan.report(call, RULE, of_receiver or reason)
        return
    plan.rewrite(call, RULE, lambda updated: _to_device(plan, call, updated), literals)


def _is_of_module(plan: Plan, receiver: cst.BaseExpression) -> bool:
    """Return whether a name is in another library's module, as in ``import tvm; tvm.target.cuda()``."""
    name = plan.view.name(receiver)
    is_module = name == dotted(receiver)  # of `from x import model`, the name would be longer
    return is_module and name.partition(".")[0] not in ("", "torch", *plan.project.packages)


def _argument_reason(plan: Plan, call: cst.Call, given: list[cst.Arg]) -> str:
    options = {arg.keyword.value for arg in call.args if arg.keyword} - {"device", "non_blocking", "memory_format"}
    if options or len(given) > 2 or any(arg.star for arg in call.args):
        return "has unknown arguments; write .to(get_accelerator().device_name(), ...)"
    if plan.device_name() is None:
        return plan.without("device_name")
    if not given or is_device_literal(given[0].value) or _is_none(given[0].value) or plan.target.names_devices:
        return ""  # with names_devices, device_name() takes an index, a device or None
    kind = kind_of(plan.view, given[0].value)
    if kind is Kind.DEVICE and _may_be_none(plan, given[0].value):
        text = plan.view.code(given[0].value)
        return f"{text} may be None, which cuda() takes for the current device and to() for no move at all"
    if kind is Kind.UNKNOWN:
        text = plan.view.code(given[0].value)
        return f"{text} may be an index or a device: .to(get_accelerator().device_name({text})), or .to({text})"
    return ""


def _may_be_none(plan: Plan, node: cst.BaseExpression, depth: int = 0) -> bool:
    """Return whether a name was given None, also by way of another name: ``self.device = device`` of ``device=None``."""
    parameter = plan.view.parameter(node)
    values = plan.view.values_of(node)
    if parameter is not None and parameter.default is not None:
        values = [*values, parameter.default]
    return any(_is_none(value) or (depth < 3 and _may_be_none(plan, value, depth + 1)) for value in values)


def _is_none(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"


def _to_device(plan: Plan, call: cst.Call, updated: cst.Call) -> cst.Call:
    """Return ``x.to(name, …)`` for ``x.cuda(…)``; a second positional argument is ``non_blocking``."""
    assert isinstance(call.func, cst.Attribute)  # noqa: S101  # a method
    rest: list[cst.Arg] = []
    device = plan.device_name()
    layout: cst.Arg | None = None
    for old, new in zip(call.args, updated.args, strict=True):
        is_device = (old.keyword is None and old is call.args[0]) or (old.keyword and old.keyword.value == "device")
        if is_device:
            device, layout = _device_argument(plan, old.value, new.value), new
        elif old.keyword is None:
            rest.append(new.with_changes(keyword=cst.Name("non_blocking"), equal=NO_SPACE))
        else:
            rest.append(new)
    assert device is not None  # noqa: S101  # checked by _argument_reason
    is_storage = _is_storage(plan, call)  # its to() takes the device by keyword only
    keyword, equal = (cst.Name("device"), NO_SPACE) if is_storage else (None, cst.MaybeSentinel.DEFAULT)
    first = (layout or cst.Arg(device)).with_changes(value=device, keyword=keyword, equal=equal)
    if rest and not isinstance(first.comma, cst.Comma):
        first = first.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
        rest[-1] = rest[-1].with_changes(comma=rest[-1].comma if layout is None else cst.MaybeSentinel.DEFAULT)
    assert isinstance(updated.func, cst.Attribute)  # noqa: S101  # a method
    return updated.with_changes(func=updated.func.with_changes(attr=cst.Name("to")), args=[first, *rest])


def _is_storage(plan: Plan, call: cst.Call) -> bool:
    assert isinstance(call.func, cst.Attribute)  # noqa: S101  # a method
    around = next((each for each in plan.view.ancestors(call) if isinstance(each, cst.Lambda)), None)
    given = plan.view.parent(around) if around is not None else None
    is_location = isinstance(given, cst.Arg) and given.keyword is not None and given.keyword.value == "map_location"
    loads = plan.view.parent(given) if isinstance(given, cst.Arg) else None
    is_load = isinstance(loads, cst.Call) and plan.view.name(loads.func) == "torch.load"
    return is_location or is_load or "storage" in (dotted(call.func.value) or "").lower()


def _device_argument(plan: Plan, old: cst.BaseExpression, new: cst.BaseExpression) -> cst.BaseExpression | None:
    if _is_none(old):
        return plan.device_name()
    if is_device_literal(old):
        return plan.device_name(index_in(old))
    is_device = kind_of(plan.view, old) is Kind.DEVICE and not _may_be_none(plan, old)
    return new if is_device else plan.device_name(new)


def _decide_pin(plan: Plan, call: cst.Call) -> None:
    assert isinstance(call.func, cst.Attribute)  # noqa: S101  # checked by decide()
    if (
        call.args
        and not is_device_literal(call.args[0].value)
        and kind_of(plan.view, call.args[0].value) is not Kind.DEVICE
    ):
        return  # a method of an accelerator, which takes a tensor
    reason = own_member(plan, call.func.value, "pin_memory", has_argument=bool(call.args))
    if call.args:
        reason = "pins memory for a named device; use get_accelerator().pin_memory(t)"
    if reason or plan.function("pin_memory") is None:
        plan.report(call, "pinning", reason or plan.without("pin_memory"))
        plan.claim(*call.args)
    else:
        _as_member(plan, call, "pin_memory", "pinning")


def _as_member(plan: Plan, call: cst.Call, member: str, rule: str) -> None:
    """Rewrite ``x.method(…)`` to ``accelerator.member(x, …)``."""
    function = plan.function(member)

    def build(updated: cst.Call) -> cst.Call:
        assert isinstance(updated.func, cst.Attribute)  # noqa: S101  # a method
        first = cst.Arg(updated.func.value)
        if updated.args:
            first = first.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
        return updated.with_changes(func=parsed(str(function)), args=[first, *updated.args])

    plan.rewrite(call, rule, build)


def _decide_number_keyword(plan: Plan, call: cst.Call) -> None:
    """Decide on ``torch.zeros(3, device=rank)``: torch interprets the integer as a CUDA device."""
    name = plan.view.name(call.func)
    if name.startswith("torch.") and not name.startswith("torch.cuda."):
        for argument in call.args:
            if argument.keyword and argument.keyword.value in KEYWORDS - {"device_type"}:
                _decide_number(plan, argument.value)


def _is_current(plan: Plan, node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and plan.view.name(node.func) == "torch.cuda.current_device"


def _decide_number(plan: Plan, value: cst.BaseExpression) -> None:
    """Decide on ``x.to(rank)``: torch interprets the integer as a CUDA device."""
    if not plan.is_open(value) or any(_is_current(plan, each) for each in plan.view.values_of(value)):
        return  # the rule current-device turns current_device() into a name where a device is expected
    told = told_index(plan.view, value)
    can_name = plan.target.names_devices and not _may_be_none(plan, value)  # to(None) does not move
    if told is None and plan.is_torch_imported and not can_name:
        text = plan.view.code(value)
        reason = (
            f"{text} may be an index, which only CUDA takes for a device; write get_accelerator().device_name({text})"
        )
        plan.report(value, "device-name", reason)
        return
    if told is False and kind_of(plan.view, value) is not Kind.INDEX:
        return
    name = (dotted(value) or "").rpartition(".")[2].lower()
    is_index = told is not False or isinstance(value, cst.Integer | cst.Subscript) or _NUMBER_NAME.search(name)
    if is_index and plan.is_torch_imported and plan.device_name(value) is not None:
        plan.rewrite(value, "device-name", plan.named)
