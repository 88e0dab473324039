"""Converts the device arguments of ``torch.cuda`` functions to the index arguments of the contract's functions."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import libcst as cst

from ..accelerator import DeepSpeedAccelerator
from .device_text import index_in, is_device_literal
from .kinds import Kind, kind_of
from .source_view import dotted, text_of
from .targets import parsed

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["NO_SPACE", "as_index", "not_taken", "renamed_device", "without_literal_device"]

NO_SPACE = cst.AssignEqual(whitespace_before=cst.SimpleWhitespace(""), whitespace_after=cst.SimpleWhitespace(""))


def as_index(view: SourceView, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the index in ``"cuda:1"`` or ``torch.device("cuda", 1)``; None for any other expression."""
    if isinstance(node, cst.Call) and view.name(node.func) == "torch.device":
        if len(node.args) == 2 and text_of(node.args[0].value) == "cuda":
            return _if_number(view, node.args[1].value)
        return as_index(view, node.args[0].value) if len(node.args) == 1 else None
    return _if_number(view, index_in(node)) if is_device_literal(node) else None


def _if_number(view: SourceView, index: cst.BaseExpression | None) -> cst.BaseExpression | None:
    """Return the index if it is a number, else None.

    A value from the environment is a string: it can be part of a device name, but it is not an index. A call of
    ``torch.cuda`` is a site of its own.
    """
    if index is None or view.name(getattr(index, "func", index)).startswith("torch.cuda."):
        return None
    return index if kind_of(view, index) is Kind.INDEX else None


def without_literal_device(view: SourceView, original: cst.Call, updated: cst.Call) -> cst.Call:
    """Return a call with the device literal in its first argument replaced by an index.

    The argument is removed if it is ``"cuda"``. Any other argument stays.
    """
    if not original.args or not is_device_literal(original.args[0].value):
        return updated
    literal = original.args[0].value
    index = as_index(view, literal)
    if index is None and index_in(literal) is not None:
        return updated
    rest = updated.args[1:]
    return updated.with_changes(args=rest if index is None else [updated.args[0].with_changes(value=index), *rest])


def not_taken(call: cst.Call, member: str) -> str:
    """Return an argument of a call that a member of the contract does not take; empty if it takes all of them.

    ``torch.cuda.graph(g, capture_error_mode="relaxed")`` is CUDA's: other devices have no such modes.
    """
    function = getattr(DeepSpeedAccelerator, member, None)
    if not callable(function):
        return ""  # a class of the device's, such as Stream
    taken = inspect.signature(function).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        return ""
    places = [arg for arg in call.args if arg.keyword is None]
    if len(places) > len(taken) - 1:  # without self
        return "one argument more"
    names = [arg.keyword.value for arg in call.args if arg.keyword is not None]
    return next((f"{each}=" for each in names if each not in taken and each != "device"), "")


def without_defaults(call: cst.Call) -> cst.Call:
    """Return a call of ``Event`` without options that only CUDA's has, where they have their default: ``blocking=False``."""
    own = ("blocking", "interprocess")
    kept = [
        each for each in call.args if not (each.keyword and each.keyword.value in own and dotted(each.value) == "False")
    ]
    if kept and len(kept) < len(call.args):
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return call.with_changes(args=kept)


def renamed_device(call: cst.Call, function: str) -> cst.Call:
    """Return a call of a member of the contract, with the keyword ``device`` renamed to ``device_index``."""
    args = [
        argument.with_changes(keyword=cst.Name("device_index"))
        if argument.keyword and argument.keyword.value == "device"
        else argument
        for argument in call.args
    ]
    return call.with_changes(func=parsed(function), args=args)
