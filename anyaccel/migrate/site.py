"""A place that is tied to CUDA, and what became of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..accelerator.errors import AnyaccelError

__all__ = ["MigrateError", "Site", "SiteOutcome", "SourceError"]


class MigrateError(AnyaccelError):
    """A migration that cannot begin: a missing path, a dirty git tree, an unknown rule or target."""

    exit_code = 2  # findings are 1


class SourceError(AnyaccelError):
    """A file that cannot be read as Python or as a notebook; the others go on."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


class SiteOutcome(str, enum.Enum):
    """What became of a site."""

    REWRITTEN = "rewritten"
    REPORTED = "reported"
    LEFT = "left"


@dataclass(frozen=True)
class Site:
    """A place that is tied to CUDA.

    Attributes:
        rule: the rule's id, such as ``"tensor-cuda"``; see ``anyaccel.migrate.rules.RULES``.
        outcome: what became of it.
        line: of its first character, from 1.
        column: of its first character, from 1.
        code: what stood there.
        replacement: what stands there now; empty unless it was rewritten.
        reason: why it needs a person and what to do, or why it is rightly CUDA's; empty where it was rewritten.
        cell: in a notebook, the number of the cell, from 1; ``line`` counts in the cell then.
        question: the class of a report, or of one that an answer has settled; see ``anyaccel/migrate/answers.py``.
        can_be_ported: whether a report has an answer by which the tool rewrites the place.
    """

    rule: str
    outcome: SiteOutcome
    line: int
    column: int
    code: str
    replacement: str = ""
    reason: str = ""
    cell: int | None = None
    question: str = ""
    can_be_ported: bool = False
