"""Reports rewrites in code that tries whether CUDA works: on a CPU the new code never fails, so the answer changes.

``try: torch.zeros(1, device="cuda"); return True`` with ``except Exception: return False`` is a question about CUDA, and
so is a ``try`` that lists the devices that exist. One that pins memory or sets the device is a question if its failure ends
what the code does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .site import SiteOutcome

if TYPE_CHECKING:
    from .plan import Plan
    from .source_view import SourceView

__all__ = ["keep_probes"]

_LINES = 20  # a longer body is the program, and not a test
_SHORT = 4  # statements
_ANSWERS = re.compile(r"^\s*(return (True|1)|[\w.]+ = True|[\w.]+\.append\(.*)\s*$", re.MULTILINE)
_IGNORES = re.compile(r"^(pass|continue|return( (False|None|0|-1))?|[\w.]+ = (False|None))$")
_CATCHES = re.compile(r"\b(Exception|BaseException|RuntimeError|AssertionError)\b")
_LEAVES = re.compile(r"^(return|raise|continue|break)\b|^[\w.]+ = (False|None)$")
_OF_LIST = "tries which CUDA devices exist; a CPU accepts every number, so use get_accelerator().device_count()"
_OF_PROBE = "tries whether CUDA works, which a CPU always does in its place; decide what other devices answer"
_OF_PINNED = "tries whether memory can be pinned, which never fails on a CPU in its place; decide what a CPU does"


def keep_probes(plan: Plan) -> None:
    """Report the rewritten sites in every ``try`` whose failure is an answer."""
    for attempt in plan.view.of(cst.Try):
        caught = _last_lines_of_handlers(plan.view, attempt)
        if not caught or len(plan.view.code(attempt.body).splitlines()) > _LINES:
            continue
        is_probe = _ANSWERS.search(plan.view.code(attempt.body)) and all(map(_IGNORES.match, caught))
        is_probe = is_probe or _gives_another_answer(plan.view, attempt)
        of_all = _OF_LIST if ".append(" in plan.view.code(attempt.body) else _OF_PROBE
        leaves = all(map(_LEAVES.match, caught))
        for node, one in list(plan.decisions.items()):
            is_pinned, is_set = (
                one.rule == "pinning",
                one.rule == "runtime-call" and "set_device" in plan.view.code(node),
            )
            asks = one.rule != "env" if is_probe else leaves and (is_pinned or is_set)
            if asks and one.outcome is SiteOutcome.REWRITTEN and plan.view.is_within(node, attempt.body):
                plan.reconsider(node, _OF_PINNED if is_pinned and not is_probe else of_all)


def _gives_another_answer(view: SourceView, attempt: cst.Try) -> bool:
    """Return whether a short ``try`` and its handler give different constants: ``return device, True`` and ``…, False``."""
    handler = attempt.handlers[0] if len(attempt.handlers) == 1 else None
    if handler is None or len(attempt.body.body) > _SHORT or not _last_lines_of_handlers(view, attempt):
        return False
    given, other = (_given_at_end(each) for each in (attempt.body, handler.body))
    if given is None or other is None or given[0] != other[0]:
        return False
    constants = (
        [view.code(each) for each in view.inside(value, cst.SimpleString, cst.Integer, cst.Name) if _is_constant(each)]
        for _, value in (given, other)
    )
    return next(constants) != next(constants)


def _given_at_end(block: cst.BaseSuite) -> tuple[str, cst.BaseExpression] | None:
    """Return what a block's last statement assigns to, or an empty string for ``return``, and the value."""
    line = block.body[-1] if block.body else None
    last = line.body[-1] if isinstance(line, cst.SimpleStatementLine) else None
    if isinstance(last, cst.Return) and last.value is not None:
        return "", last.value
    is_one = isinstance(last, cst.Assign) and len(last.targets) == 1
    return (cst.Module([]).code_for_node(last.targets[0].target), last.value) if is_one else None  # type: ignore[union-attr]


def _is_constant(node: cst.SimpleString | cst.Integer | cst.Name) -> bool:
    return not isinstance(node, cst.Name) or node.value in ("True", "False", "None")


def _last_lines_of_handlers(view: SourceView, attempt: cst.Try) -> list[str]:
    """Return the last line of each handler that catches torch's errors."""
    catching = [each for each in attempt.handlers if each.type is None or _CATCHES.search(view.code(each.type))]
    return [view.code(each.body).strip().rpartition("\n")[2].strip() for each in catching]
