"""Reports questions whose comment or docstring says that only CUDA can do what they guard: ``# only supported on CUDA``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .docstrings import docstring_of
from .lines import lines_of
from .questions import asked_in
from .site import SiteOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .plan import Plan

__all__ = ["keep_what_comments_say"]

_CUDA_ALONE = re.compile(
    r"\bonly\b[^.;]{0,40}\b(cuda|nvidia)\b|\b(cuda|nvidia)[- ](only|specific)\b|\bnon-?(cuda|nvidia)\b"
    r"|\b(cuda|nvidia) (devices?|tensors?|gpus?|inputs?) only\b",
    re.IGNORECASE,
)
_SHORT = 3  # statements; the docstring of such a function is about its question


def keep_what_comments_say(plan: Plan) -> None:
    """Report the rewritten questions under a comment that says that only CUDA can."""
    if not _CUDA_ALONE.search(plan.view.source):
        return
    lines = lines_of(plan.view.source)
    for one in list(plan.decisions.values()):
        asked = asked_in(plan, one) if one.outcome is SiteOutcome.REWRITTEN else None
        texts = (*_comments(plan, asked, lines), _docstring(plan, asked)) if asked is not None else ()
        if any(_CUDA_ALONE.search(each) for each in texts):
            plan.reconsider(
                one.node, "a comment says that only CUDA can; decide whether other devices take this branch"
            )


def _docstring(plan: Plan, node: cst.CSTNode) -> str:
    """Return the docstring of the function around a question, if the function does little else."""
    function = plan.view.function_around(node)
    docstring = docstring_of(function) if isinstance(function, cst.FunctionDef) else None
    is_short = isinstance(function, cst.FunctionDef) and len(function.body.body) <= _SHORT + 1
    return " ".join(docstring.value.split()) if docstring is not None and is_short else ""


def _comments(plan: Plan, node: cst.CSTNode, lines: list[str]) -> Iterator[str]:
    """Yield the comments above a statement and above the block that it begins, at its end, and at the end of its first line."""
    test = next((each for each in plan.view.ancestors(node) if isinstance(each, cst.If | cst.BaseStatement)), None)
    if isinstance(test, cst.If) and plan.view.is_within(node, test.test) and test.body.body:
        yield lines[plan.view.position(test.body.body[0])[0] - 1].partition("#")[2]
    inner = node
    for around in (node, *plan.view.ancestors(node)):
        if isinstance(around, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            number = plan.view.position(around)[0] - 1
            yield lines[number].partition("#")[2]
            while number and lines[number - 1].lstrip().startswith("#"):
                number -= 1
                yield lines[number]
        elif (isinstance(around, cst.IndentedBlock) and around.body[0] is not inner) or isinstance(around, cst.Module):
            return
        inner = around
