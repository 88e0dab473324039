"""Reports rewrites in code that tries whether CUDA works: on a CPU the new code never fails, so the answer changes.

``try: torch.zeros(1, device="cuda"); return True`` with ``except Exception: return False`` is a question about CUDA, and
so is a ``try`` that lists the devices that exist.
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
_ANSWERS = re.compile(r"^\s*(return (True|1)|[\w.]+ = True|[\w.]+\.append\(.*)\s*$", re.MULTILINE)
_IGNORES = re.compile(r"^(pass|continue|return( (False|None|0|-1))?|[\w.]+ = (False|None))$")
_CATCHES = re.compile(r"\b(Exception|BaseException|RuntimeError|AssertionError)\b")
_OF_LIST = "tries which CUDA devices exist; a CPU accepts every number, so use get_accelerator().device_count()"
_OF_PROBE = "tries whether CUDA works, which a CPU always does in its place; decide what other devices answer"


def keep_probes(plan: Plan) -> None:
    """Report the rewritten sites in every ``try`` whose failure is an answer."""
    for attempt in plan.view.of(cst.Try):
        if _is_probe(plan.view, attempt):
            is_list = ".append(" in plan.view.code(attempt.body)
            for node, one in list(plan.decisions.items()):
                if (
                    one.outcome is SiteOutcome.REWRITTEN
                    and one.rule != "env"
                    and plan.view.is_within(node, attempt.body)
                ):
                    plan.reconsider(node, _OF_LIST if is_list else _OF_PROBE)


def _is_probe(view: SourceView, attempt: cst.Try) -> bool:
    body = view.code(attempt.body)
    catching = [each for each in attempt.handlers if each.type is None or _CATCHES.search(view.code(each.type))]
    if not catching or len(body.splitlines()) > _LINES or not _ANSWERS.search(body):
        return False
    return all(_IGNORES.match(view.code(each.body).strip().rpartition("\n")[2].strip()) for each in catching)
