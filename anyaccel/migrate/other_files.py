"""Keeps a question whose stored answer another file tests before code that stays CUDA's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from .answers import Objection
from .dependents import of_what_depends
from .questions import asked_in
from .regions import regions_of
from .site import SiteOutcome
from .source_view import dotted
from .stored_answers import OF_TENSORS, asked_by, key_of, names_for_others

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .plan import Plan
    from .regions import Regions
    from .source_view import SourceView

__all__ = ["NOTHING_SHARED", "Shared", "of_other_file", "shared_by"]


@dataclass(frozen=True)
class Shared:
    """What the files of a project need to know of one of them.

    Attributes:
        offers: the names under which other files may read the answers to its rewritten questions.
        keeps: the names that it tests before code that stays CUDA's, each with a line.
    """

    offers: frozenset[str] = frozenset()
    keeps: Mapping[str, int] = field(default_factory=dict)


NOTHING_SHARED = Shared()


def of_other_file(plan: Plan, found: Regions) -> Objection | None:
    """Return an objection if another file tests the answer, by its name, before code that stays CUDA's."""
    elsewhere = plan.project.kept_elsewhere
    for name in sorted(names_for_others(plan.view, found)) if elsewhere else ():
        if name in elsewhere:
            return Objection(
                "depends-on-cuda",
                f"{elsewhere[name]} tests {name!r} before code for CUDA only; decide on both together",
            )
    return None


def shared_by(plan: Plan) -> Shared:
    """Return what other files need to know of a module, when everything in it is decided."""
    offers: set[str] = set()
    for one in plan.decisions.values():
        asked = asked_in(plan, one) if one.outcome is SiteOutcome.REWRITTEN else None
        if asked is not None:
            offers |= names_for_others(plan.view, regions_of(plan.view, asked))
    keeps: dict[str, int] = {}
    stays = any(one.outcome is not SiteOutcome.REWRITTEN for one in plan.decisions.values())
    for name, read in _tested(plan.view) if stays else ():
        if name not in plan.project.answers:
            continue
        asked = asked_by(plan.view, read)
        decided = plan.decisions.get(read)  # an attribute called cuda is left
        if asked is None or (decided is not None and decided.outcome is not SiteOutcome.LEFT):
            continue
        for is_negated in (False, True):
            key = f"not {name}" if is_negated else name
            if key not in keeps and _is_before_cudas_own(plan, regions_of(plan.view, asked, is_negated=is_negated)):
                keeps[key] = plan.view.position(read)[0]
    return Shared(frozenset(offers), keeps)


def _is_before_cudas_own(plan: Plan, found: Regions) -> bool:
    return bool(found.all) and any(not each.is_of_cpu for each in of_what_depends(plan, [found], found.asked))


def _tested(view: SourceView) -> Iterator[tuple[str, cst.CSTNode]]:
    """Yield what the tests of a module read that may come from another file, by the last name or the key."""
    for test in view.of(cst.If, cst.IfExp, cst.While, cst.Assert):
        for node in view.inside(test.test, cst.Name, cst.Attribute, cst.Subscript, cst.Call):
            around = view.parent(node)
            is_part = isinstance(around, cst.Attribute | cst.Call | cst.Subscript) and node in around.children[:2]
            if is_part or view.name(node).startswith("torch.") or (isinstance(node, cst.Name) and view.values_of(node)):
                continue
            called = node.func if isinstance(node, cst.Call) else node
            name = key_of(node) if isinstance(node, cst.Subscript) else (dotted(called) or "").rpartition(".")[2]
            if name and name not in OF_TENSORS and not view.name(called).startswith("torch."):
                yield name, node
