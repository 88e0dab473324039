"""The rule device-name: ``"cuda"``, ``f"cuda:{i}"`` and their like, where a device is meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .device_positions import is_device_position
from .kinds import Kind, kind_of
from .source_view import text_of

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide", "index_in", "is_device_literal", "take_torch_device"]

RULE = "device-name"
_PLAIN = re.compile(r"^cuda(?::(\d+))?$")


def index_in(node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the index that a device literal names; None for plain ``"cuda"``.

    Args:
        node: one for which :func:`is_device_literal` holds.
    """
    if isinstance(node, cst.FormattedString):
        part = node.parts[1]
        return part.expression if isinstance(part, cst.FormattedStringExpression) else None
    if isinstance(node, cst.BinaryOperation):
        return _operand(node)
    if isinstance(node, cst.Call):
        return node.args[0].value
    match = _PLAIN.match(text_of(node) or "")
    return cst.Integer(str(int(match[1]))) if match and match[1] else None


def is_device_literal(node: cst.CSTNode) -> bool:
    """Return whether an expression spells a CUDA device: as text, f-string, sum, ``%`` or ``format``."""
    text = text_of(node)
    if text is not None:
        return _PLAIN.match(text) is not None
    if isinstance(node, cst.FormattedString):
        return _is_formatted(node)
    if isinstance(node, cst.BinaryOperation):
        prefix = text_of(node.left) or ""
        if isinstance(node.operator, cst.Add):
            return prefix == "cuda:"
        return isinstance(node.operator, cst.Modulo) and prefix in ("cuda:%d", "cuda:%s", "cuda:%i")
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "format":
        is_one = len(node.args) == 1 and node.args[0].keyword is None and not node.args[0].star
        return is_one and text_of(node.func.value) in ("cuda:{}", "cuda:{0}")
    return False


def _is_formatted(node: cst.FormattedString) -> bool:
    if len(node.parts) != 2:
        return False
    head, tail = node.parts
    is_plain = isinstance(tail, cst.FormattedStringExpression) and tail.format_spec is None and tail.conversion is None
    return isinstance(head, cst.FormattedStringText) and head.value == "cuda:" and is_plain


def _operand(node: cst.BinaryOperation) -> cst.BaseExpression:
    """Return ``i`` of ``"cuda:" + str(i)`` and of ``"cuda:%d" % i`` or ``% (i,)``."""
    value = node.right
    if isinstance(node.operator, cst.Modulo):
        return value.elements[0].value if isinstance(value, cst.Tuple) and len(value.elements) == 1 else value
    is_str = isinstance(value, cst.Call) and isinstance(value.func, cst.Name) and value.func.value == "str"
    return value.args[0].value if is_str and isinstance(value, cst.Call) and len(value.args) == 1 else value


def decide(plan: Plan) -> None:
    """Decide on every device literal that nothing else has taken."""
    for node in plan.view.of(
        cst.SimpleString, cst.ConcatenatedString, cst.FormattedString, cst.BinaryOperation, cst.Call
    ):
        if plan.is_open(node) and is_device_literal(node):
            _decide_literal(plan, node)
    for node in plan.view.of(cst.Call):
        if plan.is_open(node) and plan.view.name(node.func) == "torch.device":
            _take_number(plan, node)


def _decide_literal(plan: Plan, node: cst.BaseExpression) -> None:
    where = is_device_position(plan.view, node)
    if _is_of_type(plan, node):
        plan.leave(node, RULE, "a type that lists devices")
    elif where.is_device:
        _rewrite(plan, node)
    else:
        plan.report(node, RULE, where.reason)
    plan.claim(*_own_text(node))


def _is_of_type(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a name stands in ``Literal[...]``."""
    index = plan.view.parent(node)
    whole = plan.view.parent(plan.view.parent(index) or node) if isinstance(index, cst.Index) else None
    return isinstance(whole, cst.Subscript) and plan.view.code(whole.value).rpartition(".")[2] == "Literal"


def _own_text(node: cst.BaseExpression) -> tuple[cst.CSTNode, ...]:
    """Return the texts that a literal is made of, which are no sites of their own."""
    if isinstance(node, cst.BinaryOperation):
        return (node.left,)
    if isinstance(node, cst.Call):
        return (node.func,)
    return tuple(node.children) if isinstance(node, cst.ConcatenatedString) else ()


def _rewrite(plan: Plan, node: cst.BaseExpression) -> None:
    index = index_in(node)
    if plan.device_name(index) is None:
        plan.report(node, RULE, plan.without("name for a device with an index"))
        return

    plan.rewrite(node, RULE, lambda updated: plan.named(index_in(updated)))


def take_torch_device(plan: Plan) -> None:
    """Decide on ``torch.device("cuda", i)``, whose two arguments are one name."""
    for node in plan.view.of(cst.Call):
        if plan.view.name(node.func) != "torch.device" or len(node.args) != 2 or not plan.is_open(node):
            continue
        first, second = node.args
        if text_of(first.value) != "cuda" or (second.keyword is not None and second.keyword.value != "index"):
            continue
        if plan.device_name(second.value) is None:
            plan.report(node, RULE, plan.without("name for a device with an index"))
            plan.claim(first)
        else:
            plan.rewrite(node, RULE, lambda updated: _of_index(plan, updated, 1), (first,))


def _take_number(plan: Plan, node: cst.Call) -> None:
    """Decide on ``torch.device(rank)``, which means CUDA where torch has it."""
    if len(node.args) != 1 or (isinstance(node.args[0].value, cst.Name) and node.args[0].value.value == "None"):
        return
    value = node.args[0].value
    if (
        not isinstance(value, cst.Call)
        and kind_of(plan.view, value) is Kind.INDEX
        and plan.device_name(value) is not None
    ):
        plan.rewrite(node, RULE, lambda updated: _of_index(plan, updated, 0))


def _of_index(plan: Plan, updated: cst.Call, place: int) -> cst.Call:
    return updated.with_changes(args=[cst.Arg(plan.named(updated.args[place].value))])
