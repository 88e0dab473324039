"""Which messages a question or a place is about: in its branch, for a machine without a device, or with its value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .regions import regions_of
from .source_view import dotted
from .stored_answers import regions_of_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .plan import Plan
    from .regions import Regions

__all__ = ["answered_in", "in_branches", "is_message", "of_stored_answer", "shown_with", "texts_in", "told_without"]

_SHOWN = re.compile(r"(^|\.)(print|info|debug|warning|warn|error|echo)$")
_LOGS = re.compile(r"(^|\.)log$")


def in_branches(plan: Plan, asked: cst.CSTNode | None) -> Iterator[cst.Call]:
    """Yield the messages that are shown only if a question is true."""
    for region in answered_in(plan, asked) if asked is not None else ():
        for block in region.blocks:
            yield from (each for each in plan.view.inside(block, cst.Call) if is_message(each))


def of_stored_answer(plan: Plan, asked: cst.CSTNode | None) -> Iterator[cst.Call]:
    """Yield the messages that show an answer by its name: ``print(f"CUDA available: {found}")``."""
    around = plan.view.parent(asked) if asked is not None else None
    target = around.targets[0].target if isinstance(around, cst.Assign) and len(around.targets) == 1 else None
    for read in (plan.view.uses(target) or ()) if target is not None else ():
        yield from shown_with(plan, read)


def answered_in(plan: Plan, asked: cst.CSTNode) -> list[Regions]:
    """Return what depends on a question, and on its stored answer."""
    found = regions_of(plan.view, asked)
    return [found, *regions_of_name(plan.view, found)]


def told_without(plan: Plan, region: Regions) -> Iterator[cst.SimpleString | cst.FormattedString]:
    """Yield the texts that an assertion, an error or a message shows if a question is false."""
    asked = region.asked
    around = next(
        (each for each in plan.view.ancestors(asked) if isinstance(each, cst.Assert | cst.BaseStatement)), None
    )
    if isinstance(around, cst.Assert) and around.msg is not None:
        yield from texts_in(around.msg)
    if not isinstance(around, cst.If) or not plan.view.is_within(asked, around.test):
        return
    ran = region.blocks
    other = around.orelse.body if isinstance(around.orelse, cst.Else) else None
    for block in (around.body, other):
        if block is not None and block not in ran and ran:
            for call in plan.view.inside(block, cst.Call):
                if is_message(call) or isinstance(plan.view.parent(call), cst.Raise):
                    yield from (each for argument in call.args for each in texts_in(argument.value))


def shown_with(plan: Plan, node: cst.CSTNode) -> Iterator[cst.Call]:
    """Yield the messages that show a place's value."""
    for around in plan.view.ancestors(node):
        if isinstance(around, cst.BaseSmallStatement | cst.BaseStatement):
            return
        if isinstance(around, cst.Call) and is_message(around):
            yield around


def is_message(call: cst.Call) -> bool:
    """Return whether a call shows or logs a message."""
    called = dotted(call.func) or ""
    # log() may take the name of a figure, and the figure
    is_logged = _LOGS.search(called) is not None and len(call.args) == 1
    return _SHOWN.search(called) is not None or (is_logged and isinstance(call.args[0].value, cst.FormattedString))


def texts_in(shown: cst.BaseExpression) -> Iterator[cst.SimpleString | cst.FormattedString]:
    """Yield the texts of which a message consists; not keys, and not what is given to other functions."""
    if isinstance(shown, cst.SimpleString | cst.FormattedString):
        yield shown
    elif isinstance(shown, cst.ConcatenatedString):
        yield from (each for side in (shown.left, shown.right) for each in texts_in(side))
    elif isinstance(shown, cst.BinaryOperation) and isinstance(shown.operator, cst.Add | cst.Modulo):
        yield from texts_in(shown.left)
        yield from texts_in(shown.right) if isinstance(shown.operator, cst.Add) else ()
    elif isinstance(shown, cst.IfExp):
        yield from (each for side in (shown.body, shown.orelse) for each in texts_in(side))
    elif isinstance(shown, cst.Call) and isinstance(shown.func, cst.Attribute) and shown.func.attr.value == "format":
        yield from texts_in(shown.func.value)
