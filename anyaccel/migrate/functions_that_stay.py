"""Finds the functions of a module that stay CUDA's, by what is reported in them; a question before a call of one stays, too."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import libcst as cst

from .questions import asked_in
from .regions import regions_of
from .site import SiteOutcome
from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan
    from .source_view import SourceView

__all__ = ["ENTRIES", "MAINS", "functions_that_stay"]

_NVIDIAS = re.compile(r"nvidia[-_]smi|\bpreferred_(linalg|blas)_library\b")
_NOT_CALLED_BY_NAME = ("__init__", "forward", "cuda", "pin_memory")  # calls of the last two are sites of their own
MAINS = ("main", "main_worker")
ENTRIES = (*MAINS, "train", "run", "worker", "setup")


@lru_cache(maxsize=1)  # asked for each question of a module, and few answers change a decision
def functions_that_stay(plan: Plan, changes: int) -> frozenset[str]:
    """Return the functions of this module that contain a report other than a CUDA check.

    Names that are imported under a reported CUDA check are included, functions that stop without CUDA, and a class whose
    ``__init__()`` contains such a report.
    """
    reported = [
        one for one in plan.decisions.values() if one.outcome is SiteOutcome.REPORTED and not asked_in(plan, one)
    ]
    found = _functions_that_stop(plan)
    for one in plan.decisions.values():
        asked = asked_in(plan, one) if one.outcome is SiteOutcome.REPORTED else None
        for region in regions_of(plan.view, asked).blocks if asked is not None else ():
            for statement in plan.view.inside(region, cst.Import, cst.ImportFrom):
                aliases = () if isinstance(statement.names, cst.ImportStar) else statement.names
                found |= {str(each.evaluated_alias or each.evaluated_name) for each in aliases}
    for one in reported:
        for around in plan.view.ancestors(one.node):
            if isinstance(around, cst.FunctionDef):
                owner = plan.view.class_around(around) if around.name.value == "__init__" else around
                name = owner.name.value if isinstance(owner, cst.ClassDef | cst.FunctionDef) else ""
                found |= {name} - {"", *_NOT_CALLED_BY_NAME, *ENTRIES}
                break
    return frozenset(found)


def _functions_that_stop(plan: Plan) -> set[str]:
    """Return the functions that raise without CUDA by a reported question, or run nvidia-smi, and those that call one.

    A question that decides whether to call ``self.quantize()`` and the ``if device.type != "cuda": raise …`` in it are
    for the same devices.
    """
    found = set(_functions_of_libraries(plan.view))
    for one in plan.decisions.values():
        asked = asked_in(plan, one) if one.outcome is SiteOutcome.REPORTED else None
        if asked is not None and regions_of(plan.view, asked).is_entry:
            around = (each for each in plan.view.ancestors(one.node) if isinstance(each, cst.FunctionDef))
            found.update(each.name.value for each in islice(around, 1))
    found.difference_update(_NOT_CALLED_BY_NAME, ENTRIES)
    waiting = list(found)
    while waiting:
        news = _callers(plan.view).get(waiting.pop(), set()) - found
        news.difference_update(_NOT_CALLED_BY_NAME, ENTRIES)
        found |= news
        waiting += news
    return found


@lru_cache(maxsize=1)  # asked for each question of a module
def _functions_of_libraries(view: SourceView) -> list[str]:
    """Return the functions that run nvidia-smi, or ask for cuSOLVER."""
    functions = view.of(cst.FunctionDef) if _NVIDIAS.search(view.source) else ()
    return [each.name.value for each in functions if _NVIDIAS.search(view.code(each))]


@lru_cache(maxsize=1)  # as above
def _callers(view: SourceView) -> dict[str, set[str]]:
    """Return the functions of a module that call a function or a method, by its name."""
    found: dict[str, set[str]] = {}
    for call in view.of(cst.Call):
        called = (dotted(call.func) or "").rpartition(".")[2]
        for around in view.ancestors(call):
            if isinstance(around, cst.FunctionDef):
                found.setdefault(called, set()).add(around.name.value)
    return found
