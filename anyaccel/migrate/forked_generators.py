"""Generators of random numbers that torch forks or restores: ``fork_rng(devices=…)`` and ``set_device_states(…)``.

Without ``device_type`` both may mean CUDA's generators, depending on torch's version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .call_arguments import NO_SPACE
from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide"]

_FORKS = ("torch.random.fork_rng", "torch.fork_rng")
_RESTORES = "torch.utils.checkpoint.set_device_states"
_STATES = "torch.utils.checkpoint.get_device_states"
_EMPTY = ("[]", "()", "list()", "tuple()")
_OF_CUDA = "forks CUDA's generators by default; pass device_type="


def decide(plan: Plan) -> None:
    """Decide on every call that forks or restores the generators of devices, and does not say of which type."""
    is_named = plan.target.package != "" and plan.device_name() is not None  # torch.accelerator's is none on a CPU
    for call in plan.view.of(cst.Call):
        name = plan.view.name(call.func)
        if not plan.is_open(call):
            continue
        if name in _FORKS and _forks_cudas(plan, call):
            if is_named and _lists_devices(plan, call):
                _pass_type(plan, call)
            else:
                plan.report(call, "rng", _OF_CUDA)
        elif name == _RESTORES and len(call.args) == 2 and not any(each.star for each in call.args) and is_named:
            _pass_type(plan, call)


def _forks_cudas(plan: Plan, call: cst.Call) -> bool:
    """Return whether ``fork_rng(…)`` may be given CUDA's devices; no devices, or a device type with them, are not CUDA's."""
    given = {each.keyword.value: plan.view.code(each.value) for each in call.args if each.keyword}
    options = [plan.view.code(value) for each in call.args if each.star for value in plan.view.values_of(each.value)]
    is_told = bool(options) and all("device_type" in each or each == '{"devices": []}' for each in options)
    is_named = given.get("devices", "") in ("[]", "()") or set(given) == {"enabled"}
    return bool(call.args) and not (is_told or (is_named and len(given) == len(call.args)) or "device_type" in given)


def _lists_devices(plan: Plan, call: cst.Call) -> bool:
    """Return whether the devices are a list that is empty on a CPU, and never None, which stands for all devices."""
    if any(each.star for each in call.args) or sum(each.keyword is None for each in call.args) > 2:
        return False  # torch's own names, and a type, may follow by position
    named = [each.value for each in call.args if each.keyword is not None and each.keyword.value == "devices"]
    devices = named or [each.value for each in call.args[:1] if each.keyword is None]
    return bool(devices) and _is_list(plan, devices[0])


def _is_list(plan: Plan, devices: cst.BaseExpression) -> bool:
    values = [devices]
    if isinstance(devices, cst.Name):
        values = plan.view.values_of(devices)
        if len(values) < len(plan.view.bindings_of(devices)):  # a parameter, or a loop's variable, which may be None
            return False
    alternatives = [each for value in values for each in _alternatives(value)]
    codes = [plan.view.code(each).strip() for each in alternatives]
    if any("device_count" in code for code in codes):  # a CPU counts its devices, too
        return False
    if not all(_is_known(plan, each) for each in alternatives):
        return False
    return isinstance(devices, cst.List | cst.Tuple) or any(code in _EMPTY for code in codes)


def _is_known(plan: Plan, value: cst.BaseExpression) -> bool:
    """Return whether a value is a list or a tuple, or the devices that ``get_device_states(…)`` has found."""
    if isinstance(value, cst.List | cst.Tuple | cst.ListComp) or plan.view.code(value).strip() in _EMPTY:
        return True
    if isinstance(value, cst.Call):
        return dotted(value.func) in ("list", "tuple", "sorted")
    values = plan.view.values_of(value) if isinstance(value, cst.Attribute) else []  # ``ctx.devices``
    if values and all(not isinstance(each, cst.Attribute) and _is_known(plan, each) for each in values):
        return True
    for assigned in plan.view.of(cst.Assign):
        target = assigned.targets[0].target
        is_states = isinstance(assigned.value, cst.Call) and plan.view.name(assigned.value.func) == _STATES
        if is_states and isinstance(target, cst.Tuple) and dotted(target.elements[0].value) == (dotted(value) or ""):
            return True
    return False


def _alternatives(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    if not isinstance(value, cst.IfExp):
        return [value]
    return [*_alternatives(value.body), *_alternatives(value.orelse)]


def _pass_type(plan: Plan, call: cst.Call) -> None:
    def build(updated: cst.Call) -> cst.Call:
        last = updated.args[-1]
        kind = cst.Arg(plan.named(), keyword=cst.Name("device_type"), equal=NO_SPACE, comma=last.comma)
        separator = cst.Comma(whitespace_after=_between(updated))
        return updated.with_changes(args=[*updated.args[:-1], last.with_changes(comma=separator), kind])

    plan.rewrite(call, "rng", build)


def _between(call: cst.Call) -> cst.BaseParenthesizableWhitespace:
    """Return what stands between two arguments of a call: a line break, if each has a line of its own."""
    first = call.args[0].comma
    is_line = len(call.args) > 1 and isinstance(first, cst.Comma)
    return first.whitespace_after if is_line and isinstance(first, cst.Comma) else cst.SimpleWhitespace(" ")
