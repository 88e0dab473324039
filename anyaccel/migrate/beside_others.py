"""Questions for CUDA beside questions for another accelerator: a device answers only one of them, and must not do both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .regions import leaves

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["HARMLESS", "OTHERS", "does_again"]

OTHERS = re.compile(
    r"\b(torch\.)?(xpu|npu|hpu|mlu|musa|sdaa)\b|_(xpu|npu|hpu|mlu|musa|sdaa)_|[\"'](xpu|npu|hpu|mlu|musa|sdaa)",
    re.IGNORECASE,
)
HARMLESS = re.compile(r"\btorch\.cuda\.(empty_cache|(manual_)?seed(_all)?|ipc_collect)\(")
_APPLES = re.compile(r"\bmps\.is_available\(\)")
_AGAIN = re.compile(HARMLESS.pattern + r"|\btorch\.cuda\.synchronize\(|\bgc\.collect\(")
_MOVES = re.compile(r"([\w.]+) = \1\.(cuda|to)\([^()]*\)|[\w.]+\.(cuda|to)\([^()]*\)")
_NAMES = re.compile(r"[\"']cuda\b")
_SAYS = re.compile(r"(print|[\w.]+\.(info|debug|warn|warning|error))\(")


def does_again(view: SourceView, test: cst.If) -> bool:
    """Return whether a question for CUDA is beside one for another accelerator, and what depends on it must not happen twice.

    ``if torch.xpu.is_available(): dist.all_reduce(loss)``, ``if torch.cuda.is_available(): dist.all_reduce(loss)``, in
    either order. Other statements may be between them if both do the same.
    """
    block, asked = view.parent(test), view.code(test.test)
    body = list(block.body) if isinstance(block, cst.IndentedBlock | cst.Module) else []
    if test not in body or "torch.cuda." not in asked or OTHERS.search(asked):
        return False
    if _may_be_repeated(view, test.body):
        return False
    place, does = body.index(test), view.code(test.body)
    reached = body[:place] if leaves(view, test.body) else body
    beside = body[max(0, place - 1) : place + 2]
    moves = _NAMES.search(does) or any(_MOVES.fullmatch(line.strip()) for line in does.splitlines())
    others = [OTHERS] if moves else [OTHERS, _APPLES]  # a half that stays would be where other devices are not
    return any(
        isinstance(each, cst.If)
        and _asks_for_other(view, each, others)
        and (each in beside or view.code(each.body) == does)
        for each in reached
    )


def _asks_for_other(view: SourceView, test: cst.If, others: list[re.Pattern[str]]) -> bool:
    """Return whether a question without an ``else`` is for another accelerator, and does not leave."""
    asked = view.code(test.test)
    is_of_other = any(each.search(asked) for each in others)
    return is_of_other and "cuda" not in asked and test.orelse is None and not leaves(view, test.body)


def _may_be_repeated(view: SourceView, statement: cst.CSTNode) -> bool:
    """Return whether code that runs twice does what it does once: it sets names, moves, frees a cache, shows, or returns."""
    if isinstance(statement, cst.BaseSuite):
        lines = ((line.body if isinstance(line, cst.SimpleStatementLine) else (line,)) for line in statement.body)
        return all(_may_be_repeated(view, each) for line in lines for each in line)
    if isinstance(statement, cst.If):
        other = statement.orelse.body if isinstance(statement.orelse, cst.Else) else statement.orelse
        return _may_be_repeated(view, statement.body) and (other is None or _may_be_repeated(view, other))
    code = view.code(statement)
    if _MOVES.fullmatch(code):
        return True
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        target = view.code(statement.targets[0].target)
        return re.search(rf"(?<![\w.]){re.escape(target)}\b", view.code(statement.value)) is None
    return (
        isinstance(statement, cst.Pass | cst.Return) or _AGAIN.match(code) is not None or _SAYS.match(code) is not None
    )
