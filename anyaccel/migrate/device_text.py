"""The ways in which code spells the name of a CUDA device, and the index in each."""

from __future__ import annotations

import re

import libcst as cst

from .source_view import text_of

__all__ = ["ACCELERATORS", "NAMES_NCCL", "WRITTEN", "index_in", "is_device_literal", "own_text", "spells_cuda"]

ACCELERATORS = frozenset({"xpu", "npu", "hpu", "mlu", "musa", "sdaa"})
"""The names of accelerators that programs tell apart from CUDA."""

NAMES_NCCL = re.compile(r"nccl|NCCL|Nccl")  # not AsyncClient

WRITTEN = re.compile(r"\b\w*(device|accelerator)_name\(")
"""The name of the accelerator, as an earlier run wrote it."""

_PLAIN = re.compile(r"^cuda(?::(\d+))?$")
_PERCENT = re.compile(r"^cuda:%[dsi]$")
_BRACES = re.compile(r"^cuda:\{(?P<field>\w*)(?:![sr])?(?::d)?\}$")
_UNFINISHED = re.compile(r"^cuda:?[%{\d]|^cuda:$")


def is_device_literal(node: cst.CSTNode) -> bool:
    """Return whether an expression spells a CUDA device: as string, f-string, concatenation, ``%`` or ``format``."""
    text = text_of(node)
    if text is not None:
        return _PLAIN.match(text) is not None
    if isinstance(node, cst.FormattedString):
        return _is_formatted(node)
    if isinstance(node, cst.BinaryOperation):
        return _operand(node) is not None
    return isinstance(node, cst.Call) and _formatted_argument(node) is not None


def index_in(node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the index that a device literal names; None for plain ``"cuda"``.

    Args:
        node: an expression for which :func:`is_device_literal` is true.
    """
    if isinstance(node, cst.FormattedString):
        return _index_of_parts(node)
    if isinstance(node, cst.BinaryOperation):
        return _operand(node)
    if isinstance(node, cst.Call):
        return _formatted_argument(node)
    return _index_of_text(text_of(node) or "")


def own_text(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """Return the nodes that hold the strings of a device literal; they are not sites of their own."""
    if isinstance(node, cst.BinaryOperation):
        return (node.left,)
    if isinstance(node, cst.Call):
        return (node.func,)
    return (node.left, node.right) if isinstance(node, cst.ConcatenatedString) else ()


def spells_cuda(node: cst.CSTNode) -> bool:
    """Return whether a string starts like a CUDA device name but continues in a way that is not understood."""
    text = text_of(node)
    if isinstance(node, cst.FormattedString) and node.parts:
        head = node.parts[0]
        if not isinstance(head, cst.FormattedStringText) or not re.match(r"^cuda(:|$)", head.value):
            return False
        return " " not in "".join(part.value for part in node.parts if isinstance(part, cst.FormattedStringText))
    return text is not None and _UNFINISHED.match(text) is not None and " " not in text


def _index_of_text(text: str) -> cst.BaseExpression | None:
    match = _PLAIN.match(text)
    return cst.Integer(str(int(match[1]))) if match and match[1] else None


def _is_formatted(node: cst.FormattedString) -> bool:
    if len(node.parts) == 1:
        only = node.parts[0]
        return isinstance(only, cst.FormattedStringText) and _PLAIN.match(only.value) is not None
    if len(node.parts) != 2:
        return False
    head, tail = node.parts
    if not isinstance(head, cst.FormattedStringText) or not isinstance(tail, cst.FormattedStringExpression):
        return False
    spec = tail.format_spec or ()
    is_number = not spec or (len(spec) == 1 and isinstance(spec[0], cst.FormattedStringText) and spec[0].value == "d")
    return head.value == "cuda:" and is_number and tail.conversion in (None, "s") and tail.equal is None


def _index_of_parts(node: cst.FormattedString) -> cst.BaseExpression | None:
    last = node.parts[-1]
    if isinstance(last, cst.FormattedStringExpression):
        return last.expression
    return _index_of_text(last.value) if isinstance(last, cst.FormattedStringText) else None


def _operand(node: cst.BinaryOperation) -> cst.BaseExpression | None:
    """Return ``i`` of ``"cuda:" + str(i)``, of ``"cuda" + ":" + str(i)``, and of ``"cuda:%d" % i`` or ``% (i,)``."""
    value = node.right
    if isinstance(node.operator, cst.Add):
        if _sum_of_texts(node.left) != "cuda:" or text_of(value) is not None:
            return None
        is_str = isinstance(value, cst.Call) and isinstance(value.func, cst.Name) and value.func.value == "str"
        return value.args[0].value if is_str and isinstance(value, cst.Call) and len(value.args) == 1 else value
    if not isinstance(node.operator, cst.Modulo) or not _PERCENT.match(text_of(node.left) or ""):
        return None
    if isinstance(value, cst.Tuple):
        return value.elements[0].value if len(value.elements) == 1 else None
    return None if isinstance(value, cst.Dict) else value


def _sum_of_texts(node: cst.BaseExpression) -> str:
    """Return the concatenated string, ``"cuda:"`` for ``"cuda" + ":"``; empty if an operand is not a string."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        left, right = _sum_of_texts(node.left), _sum_of_texts(node.right)
        return left + right if left and right else ""
    return text_of(node) or ""


def _formatted_argument(node: cst.Call) -> cst.BaseExpression | None:
    """Return ``i`` of ``"cuda:{}".format(i)`` and of ``"cuda:{i:d}".format(i=…)``."""
    if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "format" or len(node.args) != 1:
        return None
    match, argument = _BRACES.match(text_of(node.func.value) or ""), node.args[0]
    if match is None or argument.star:
        return None
    wanted = argument.keyword.value if argument.keyword else "0"
    return argument.value if match["field"] in ((wanted,) if argument.keyword else ("", wanted)) else None
