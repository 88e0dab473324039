"""Tells an index (``local_rank``) from a device (``torch.device("cuda", 1)``) where an argument may be either."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["DEVICE_NAME", "Kind", "kind_by_name", "kind_of"]

_INDEX_NAME = re.compile(
    r"(^|_)(rank|gpu|gpu_?(id|no|num|idx|index)|cuda_?(id|idx|index)|idx|index|ordinal|"
    r"dev(ice)?_?(id|idx|index|num|no|ordinal)|id|[ijkn])$"
)
_INDEX_LIST = re.compile(r"(^|_)(gpus?|gpu_?(ids|list)|devices?_?ids|ranks|device_?indices)$")
DEVICE_NAME = re.compile(r"(^|_)(dev|device)$|^(device|dev)_?(name|str|type)?$")
_INDEX_CALL = re.compile(
    r"(^|_)(int|len|rank|get_rank|get_local_rank|local_rank|current_device|device_count|get_device)$"
)
_ARITHMETIC = (cst.Add, cst.Subtract, cst.Multiply, cst.FloorDivide, cst.Modulo)


class Kind(enum.Enum):
    """What an argument is."""

    INDEX = enum.auto()
    DEVICE = enum.auto()
    UNKNOWN = enum.auto()


def kind_of(view: SourceView, node: cst.BaseExpression, depth: int = 0) -> Kind:
    """Return what an expression is, by what is assigned to it, or by its name where nothing tells."""
    if isinstance(node, cst.Integer):
        return Kind.INDEX
    if isinstance(node, cst.Call):
        return _kind_of_call(view, node)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, _ARITHMETIC):
        is_text = any(text_of(side) is not None for side in (node.left, node.right))
        return Kind.UNKNOWN if is_text else Kind.INDEX
    if isinstance(node, cst.Subscript):
        return _kind_of_element(node)
    name = dotted(node)
    if name is None:
        return Kind.UNKNOWN
    values = view.values_of(node) if depth < 3 else []
    told = {kind_of(view, value, depth + 1) for value in values if not _is_none(value)}
    told |= _kinds_that_callers_pass(view, node) if depth < 1 else set()
    told.discard(Kind.UNKNOWN)
    if told:
        return told.pop() if len(told) == 1 else Kind.UNKNOWN
    return kind_by_name(name)


def _kinds_that_callers_pass(view: SourceView, node: cst.BaseExpression) -> set[Kind]:
    """Return what this module's calls pass for a parameter; a conflict with its name makes it unknown."""
    parameter = view.parameter(node)
    owner = (
        next((each for each in view.ancestors(parameter) if isinstance(each, cst.FunctionDef)), None)
        if parameter
        else None
    )
    if parameter is None or owner is None:
        return set()
    names = [each.name.value for each in (*owner.params.posonly_params, *owner.params.params)]
    name = parameter.name.value
    place = names.index(name) - (names[0] in ("self", "cls")) if name in names else -1
    kinds = set()
    for call in view.of(cst.Call):
        if (dotted(call.func) or "").rpartition(".")[2] != owner.name.value:
            continue
        for number, argument in enumerate(call.args):
            if argument.keyword.value == name if argument.keyword else number == place and not argument.star:
                kinds.add(kind_of(view, argument.value, depth=2))
    kinds.discard(Kind.UNKNOWN)
    return {*kinds, kind_by_name(name)} - {Kind.UNKNOWN} if kinds else set()


def kind_by_name(name: str) -> Kind:
    """Return what a name, such as ``args.local_rank``, says that it holds."""
    name = name.rpartition(".")[2].lower()
    if DEVICE_NAME.search(name):
        return Kind.DEVICE
    return Kind.INDEX if _INDEX_NAME.search(name) else Kind.UNKNOWN


def _kind_of_call(view: SourceView, node: cst.Call) -> Kind:
    if view.name(node.func) == "torch.device":
        return Kind.DEVICE
    called = (dotted(node.func) or "").rpartition(".")[2]
    if called == "device_name":
        return Kind.DEVICE
    return Kind.INDEX if _INDEX_CALL.search(called) else Kind.UNKNOWN


def _kind_of_element(node: cst.Subscript) -> Kind:
    text = ""
    if len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
        text = text_of(node.slice[0].slice.value) or ""  # os.environ["LOCAL_RANK"] is text: UNKNOWN
    listed = (dotted(node.value) or "").rpartition(".")[2].lower()
    return Kind.INDEX if not text and _INDEX_LIST.search(listed) else Kind.UNKNOWN


def _is_none(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"
