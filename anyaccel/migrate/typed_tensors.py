"""The rule typed-tensor: ``torch.cuda.FloatTensor`` and the other tensor types, as classes, aliases and strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .choices import asks_availability
from .runtime_calls import references
from .source_view import dotted, text_of
from .targets import expression, parsed

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide"]

RULE = "typed-tensor"
_DTYPES = {
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "ByteTensor": "uint8",
    "CharTensor": "int8",
    "ShortTensor": "int16",
    "IntTensor": "int32",
    "LongTensor": "int64",
    "BoolTensor": "bool",
}
_PREFIX = "torch.cuda."


def decide(plan: Plan) -> None:
    """Decide on every CUDA tensor type."""
    for node, name in references(plan):
        kind = name.removeprefix(_PREFIX)
        if kind in _DTYPES and plan.is_open(node):
            _decide_class(plan, node, kind)
    for node in plan.view.of(cst.SimpleString):
        kind = (text_of(node) or "").removeprefix(_PREFIX)
        if kind in _DTYPES and (text_of(node) or "").startswith(_PREFIX) and plan.is_open(node):
            _decide_text(plan, node, kind)


def _decide_class(plan: Plan, node: cst.CSTNode, kind: str) -> None:
    around = plan.view.parent(node)
    if isinstance(around, cst.Call) and around.func is node:
        _decide_construction(plan, around, kind)
    elif plan.target.name == "anyaccel" and _is_beside_cpus(plan, node, kind):
        plan.rewrite(node, RULE, lambda _: parsed(str(_typed(plan, kind))))
    elif isinstance(around, cst.Arg):
        _decide_argument(plan, node, around, kind)
    elif _is_of_union(plan, node):
        plan.leave(node, RULE, "part of a type, which no device checks")
    elif isinstance(around, cst.IfExp | cst.Assign):
        _decide_alias(plan, node, kind)
    else:
        plan.report(node, RULE, "a tensor type as a value; pass a dtype and a device instead")


def _is_beside_cpus(plan: Plan, node: cst.CSTNode, kind: str) -> bool:
    """Return whether a test that a tensor of CUDA's type passes is one that a tensor of the CPU's type passes, too.

    It is ``isinstance(x, (torch.LongTensor, torch.cuda.LongTensor))``, or two of them joined by ``or``. Proof: on a CPU the
    accelerator's type is ``torch.LongTensor``, which is there already, and on CUDA it is CUDA's. What depends on the test
    is not CUDA's own, as a CPU's tensor passes it.
    """
    listed = plan.view.parent(plan.view.parent(node) or node)
    call = plan.view.parent(plan.view.parent(listed) or node) if isinstance(listed, cst.Tuple) else listed
    if not isinstance(call, cst.Call) or dotted(call.func) != "isinstance" or len(call.args) != 2:
        return False
    if isinstance(listed, cst.Tuple):
        return any(plan.view.name(each.value) == f"torch.{kind}" for each in listed.elements)
    either = plan.view.parent(call)
    other = either.left if isinstance(either, cst.BooleanOperation) and isinstance(either.operator, cst.Or) else None
    is_same = isinstance(other, cst.Call) and plan.view.code(other.args[0]) == plan.view.code(call.args[0])
    return is_same and isinstance(other, cst.Call) and plan.view.name(other.args[-1].value) == f"torch.{kind}"


def _is_of_union(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a type is listed in ``Union[…]``."""
    union = plan.view.parent(plan.view.parent(plan.view.parent(node) or node) or node)
    return isinstance(union, cst.Subscript) and (dotted(union.value) or "").rpartition(".")[2] == "Union"


def _typed(plan: Plan, kind: str) -> str | None:
    """Return the expression for this device's tensor type; None if the target has none."""
    own = plan.function(kind)
    if own is not None:
        return own
    other = plan.function("tensor_type")
    plan.needs_torch |= other is not None
    return None if other is None else f"{other}(torch.{_DTYPES[kind]})"


def _decide_construction(plan: Plan, call: cst.Call, kind: str) -> None:
    """Use a factory if the argument's kind is clear, else this device's tensor type, which inspects it when called."""
    typed = _typed(plan, kind)
    values = [argument.value for argument in call.args]
    is_listed = [argument.star for argument in call.args] == ["*"] and plan.target.name == "anyaccel"
    if is_listed:
        plan.rewrite(call.func, RULE, lambda _: parsed(str(typed)))
    elif plan.device_name() is None or any(argument.star or argument.keyword for argument in call.args):
        plan.report(
            call.func, RULE, "the arguments are in a list or have keywords; use torch.empty() or torch.tensor()"
        )
    elif values and all(isinstance(value, cst.Integer) for value in values):
        _construct(plan, call, "torch.empty", kind)
    elif len(values) == 1 and isinstance(values[0], cst.List):
        _construct(plan, call, "torch.tensor", kind)
    elif not values:
        _construct(plan, call, "torch.empty", kind)
    elif typed is None:
        plan.report(
            call.func,
            RULE,
            "the argument may be a size or data; use torch.empty(size, dtype=, device=) or torch.tensor(data, dtype=, device=)",
        )
    else:
        plan.rewrite(call.func, RULE, lambda _: parsed(typed))


def _construct(plan: Plan, call: cst.Call, factory: str, kind: str) -> None:
    plan.needs_torch = True

    def build(updated: cst.Call) -> cst.CSTNode:
        options = expression(f"f(dtype=torch.{_DTYPES[kind]}, device={{device}})", device=plan.named())
        assert isinstance(options, cst.Call)  # noqa: S101  # the template is a call
        given = list(updated.args) or [cst.Arg(cst.Integer("0"))]
        given[-1] = given[-1].with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
        return updated.with_changes(func=parsed(factory), args=[*given, *options.args])

    plan.rewrite(call, RULE, build, (call.func,))


def _decide_argument(plan: Plan, node: cst.CSTNode, argument: cst.Arg, kind: str) -> None:
    call = plan.view.parent(argument)
    if not isinstance(call, cst.Call):
        plan.report(node, RULE, "a class that derives from a tensor type; derive it from torch.Tensor")
    elif _is_type_method(call):
        _to_this_device(plan, call, node, f"torch.{_DTYPES[kind]}")
    elif isinstance(call.func, cst.Name) and call.func.value == "isinstance" and dotted(call.args[0].value):
        _decide_test(plan, call, call.args[0].value, kind, node)
    else:
        plan.report(node, RULE, "a tensor type as an argument; pass a dtype and a device instead")


def _is_type_method(call: cst.Call) -> bool:
    is_method = isinstance(call.func, cst.Attribute) and call.func.attr.value == "type"
    return is_method and len(call.args) == 1 and not call.args[0].star and not call.args[0].keyword


def _to_this_device(plan: Plan, call: cst.Call, site: cst.CSTNode, dtype: str) -> None:
    """Rewrite ``x.type(torch.cuda.FloatTensor)`` to ``x.to(device, dtype)``."""
    device = plan.device_name()
    if device is None:
        plan.report(site, RULE, plan.without("device_name"))
        return
    plan.needs_torch = True

    def build(updated: cst.Call) -> cst.CSTNode:
        assert isinstance(updated.func, cst.Attribute)  # noqa: S101  # a method
        new = expression(f"x.to({{device}}, {dtype})", device=device)
        assert isinstance(new, cst.Call)  # noqa: S101  # the template is a call
        return updated.with_changes(func=updated.func.with_changes(attr=cst.Name("to")), args=new.args)

    plan.rewrite(call, RULE, build, (site,))


def _decide_test(
    plan: Plan, whole: cst.BaseExpression, tensor: cst.BaseExpression, kind: str, site: cst.CSTNode
) -> None:
    """Rewrite ``isinstance(x, torch.cuda.FloatTensor)``, which checks two things: the dtype and the device."""
    function = plan.function("on_accelerator")
    if function is None:
        plan.report(site, RULE, plan.without("on_accelerator"))
        return
    plan.needs_torch = True
    asked = f"({{x}}.dtype == torch.{_DTYPES[kind]} and {function}({{x}}))"
    if isinstance(whole, cst.Call):
        asked = f"(isinstance({{x}}, torch.Tensor) and {asked[1:]}"
    plan.rewrite(whole, RULE, lambda _: expression(asked, x=tensor), tuple(whole.children))


def _decide_text(plan: Plan, node: cst.SimpleString, kind: str) -> None:
    around = plan.view.parent(node)
    call = plan.view.parent(around) if isinstance(around, cst.Arg) else None
    if isinstance(call, cst.Call) and _is_type_method(call):
        _to_this_device(plan, call, node, f"torch.{_DTYPES[kind]}")
        return
    comparison = plan.view.parent(around) if isinstance(around, cst.ComparisonTarget) else None
    if isinstance(comparison, cst.Comparison) and len(comparison.comparisons) == 1:
        asked, left = comparison.comparisons[0].operator, comparison.left
        is_type = isinstance(left, cst.Call) and isinstance(left.func, cst.Attribute) and left.func.attr.value == "type"
        if isinstance(asked, cst.Equal) and is_type and isinstance(left, cst.Call) and not left.args:
            assert isinstance(left.func, cst.Attribute)  # noqa: S101  # guaranteed by is_type
            if dotted(left.func.value):
                _decide_test(plan, comparison, left.func.value, kind, node)
                return
    is_default = isinstance(call, cst.Call) and plan.view.name(call.func) == "torch.set_default_tensor_type"
    advice = (
        "use torch.set_default_dtype() and torch.set_default_device() instead"
        if is_default
        else "compare dtype and device"
    )
    plan.report(node, RULE, f"a tensor type as text; {advice}")


def _decide_alias(plan: Plan, node: cst.CSTNode, kind: str) -> None:
    """Decide on ``Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor`` and every use of the alias."""
    around = plan.view.parent(node)
    choice = around if isinstance(around, cst.IfExp) else None
    assign = plan.view.parent(choice) if choice else around
    typed = _typed(plan, kind)
    if (
        typed is None
        or not isinstance(assign, cst.Assign)
        or len(assign.targets) != 1
        or (choice and choice.test is node)
    ):
        plan.report(node, RULE, "a tensor type as a value; pass a dtype and a device instead")
        return
    uses = plan.view.uses(assign.targets[0].target)
    calls = [plan.view.parent(use) for use in uses or []]
    unknown = [use for use, each in zip(uses or [], calls, strict=True) if not _is_known_use(plan, use, each)]
    if not uses or unknown:
        where = f"at line {plan.view.position(unknown[0])[0]} as more than a factory" if unknown else "in another file"
        plan.report(node, RULE, f"another name for a tensor type, used {where}; pass a dtype and a device instead")
        return
    given = [each for each in calls if isinstance(each, cst.Arg)]
    if choice is not None and _is_choice_of_dtype(plan, choice) and len(given) == len(calls):
        plan.rewrite(node, RULE, lambda _: parsed(f"torch.{_DTYPES[kind]}"))
        for use, argument in zip(uses, given, strict=True):
            _to_this_device(plan, _type_call(plan, argument), use, plan.view.code(use))
        return
    for use, each in zip(uses, calls, strict=True):
        if isinstance(each, cst.Arg) and plan.is_open(use):
            is_only = choice is None and all(value is node for value in plan.view.values_of(assign.targets[0].target))
            if is_only or (choice is not None and _is_always_there(plan, choice.test)):
                _to_this_device(plan, _type_call(plan, each), use, f"torch.{_DTYPES[kind]}")
            else:
                plan.rewrite(use, RULE, lambda updated: expression("{t}(0)", t=updated))
                plan.rewrite(_type_call(plan, each).func, RULE, _as_to)
    if choice is not None and asks_availability(plan.view, choice.test) is True:
        plan.rewrite(choice, RULE, lambda _: parsed(typed), tuple(choice.children))
    else:
        plan.rewrite(node, RULE, lambda _: parsed(typed))


def _is_choice_of_dtype(plan: Plan, choice: cst.IfExp) -> bool:
    """Return whether both types of a conditional are CUDA types; it is then rewritten to choose between dtypes."""
    names = (plan.view.name(branch) for branch in (choice.body, choice.orelse))
    return all(name.startswith(_PREFIX) and name.removeprefix(_PREFIX) in _DTYPES for name in names)


def _is_always_there(plan: Plan, test: cst.BaseExpression) -> bool:
    """Return whether a condition only checks that the device is available, directly or through a variable."""
    if isinstance(test, cst.IfExp):
        is_truth = plan.view.code(test.body) == "True" and plan.view.code(test.orelse) == "False"
        return is_truth and _is_always_there(plan, test.test)
    values = plan.view.values_of(test) if isinstance(test, cst.Name) else []
    if values:
        return all(_is_always_there(plan, value) for value in values)
    return asks_availability(plan.view, test) is True


def _is_known_use(plan: Plan, use: cst.CSTNode, around: cst.CSTNode | None) -> bool:
    if isinstance(around, cst.Call):
        return around.func is use
    return isinstance(around, cst.Arg) and _is_type_method_of(plan, around)


def _is_type_method_of(plan: Plan, argument: cst.Arg) -> bool:
    call = plan.view.parent(argument)
    return isinstance(call, cst.Call) and _is_type_method(call)


def _type_call(plan: Plan, argument: cst.Arg) -> cst.Call:
    call = plan.view.parent(argument)
    assert isinstance(call, cst.Call)  # noqa: S101  # guaranteed by _is_known_use
    return call


def _as_to(updated: cst.Attribute) -> cst.Attribute:
    """Return ``x.to`` for ``x.type``; called with a tensor, ``to`` uses that tensor's dtype and device."""
    return updated.with_changes(attr=cst.Name("to"))
