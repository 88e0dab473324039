"""Recognizes code that may depend on the device type without harm: its effect is the same, or nothing, everywhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["is_given_to_neutral", "is_neutral", "is_option", "is_option_given"]

_FLAGS = re.compile(r"(^|_)(pin(_?mem(ory)?)?|non_blocking|fused|persistent_workers|prefetch|benchmark|deterministic)$")
_GIVEN = re.compile(r"(^|_)(non_blocking|fused|persistent_workers)$")
_SHOWN = re.compile(r"^(print|.*\.(info|debug|warning|log|write|format|append))$")
_EVERYWHERE = ("torch.manual_seed", "torch.set_float32_matmul_precision", "gc.collect")
_OPTIONS = ("pin_memory", "non_blocking", "fused", "persistent_workers", "prefetch_factor", "num_workers", "shuffle")


def is_neutral(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a block or an expression only shows something or sets an option that every device accepts.

    Pinned memory, non-blocking copies and fused optimizers are such options: torch accepts them on the CPU too.
    """
    if isinstance(node, cst.BaseSuite):
        return all(is_neutral(view, each) for each in node.body)
    if isinstance(node, cst.SimpleStatementLine):
        return all(is_neutral(view, each) for each in node.body)
    if isinstance(node, cst.Pass | cst.Dict):
        return True
    if isinstance(node, cst.ImportFrom):
        return view.code(node).startswith("from torch.backends import ")  # for its switches
    if isinstance(node, cst.Expr):
        call = node.value
        return isinstance(call, cst.Call) and (
            _SHOWN.match(dotted(call.func) or "") is not None or view.name(call.func) in _EVERYWHERE
        )
    if isinstance(node, cst.Assign):
        if all(view.name(each.target).startswith("torch.backends.") for each in node.targets):
            return True  # switches of libraries that other devices do not use
        if isinstance(node.value, cst.Call) and _is_layout(node.value):
            return True
        return all(_is_flag(each.target) for each in node.targets) and _is_constant(node.value)
    if isinstance(node, cst.Call):
        return dotted(node.func) == "dict" or _is_move(node)
    return False


def _is_flag(target: cst.BaseExpression) -> bool:
    if isinstance(target, cst.Subscript):
        return any(f'"{option}"' in _key(target) or f"'{option}'" in _key(target) for option in _OPTIONS)
    return _FLAGS.search((dotted(target) or "").rpartition(".")[2].lower()) is not None


def _key(target: cst.Subscript) -> str:
    inside = target.slice[0].slice
    return inside.value.value if isinstance(inside, cst.Index) and isinstance(inside.value, cst.SimpleString) else ""


def _is_constant(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value in ("True", "False", "None")


def _is_move(call: cst.Call) -> bool:
    """Return whether a call is ``x.to(…)``, such as ``x.to(device, non_blocking=True)``."""
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "to"


def _is_layout(call: cst.Call) -> bool:
    """Return whether a call is ``x.to(memory_format=…)``, which changes no value on any device."""
    keywords = {each.keyword.value if each.keyword else "" for each in call.args}
    return _is_move(call) and keywords <= {"memory_format", "non_blocking"}


def is_given_to_neutral(view: SourceView, value: cst.CSTNode | None) -> bool:
    """Return whether an answer is used only as an option that every device accepts, directly or through a variable."""
    if isinstance(value, cst.Arg):
        return is_option(view, value.value)
    if not isinstance(value, cst.Assign) or len(value.targets) != 1:
        return False
    uses = view.uses(value.targets[0].target)
    return bool(uses) and all(is_option(view, use) for use in uses or ())


def is_option(view: SourceView, use: cst.CSTNode) -> bool:
    """Return whether an answer is passed as an option that every device accepts.

    ``pin_memory=True`` is none: a DataLoader warns of it on a machine without an accelerator, and other functions refuse it.
    """
    around = view.parent(use)
    return isinstance(around, cst.Arg) and is_option_given(around)


def is_option_given(around: cst.Arg) -> bool:
    """Return whether an argument is an option that every device accepts; see :func:`is_option`."""
    return around.keyword is not None and _GIVEN.search(around.keyword.value) is not None
