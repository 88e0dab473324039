"""A site is a place in the code that is tied to CUDA; it has an outcome."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..accelerator.errors import AnyaccelError

__all__ = ["MigrateError", "Site", "SiteOutcome", "SourceError"]


class MigrateError(AnyaccelError):
    """A migration that cannot start: a missing path, a dirty git tree, an unknown rule or target."""

    exit_code = 2  # findings exit with 1


class SourceError(AnyaccelError):
    """A file that cannot be read as Python or as a notebook; the other files are still processed."""

    def __init__(self, message: str, line: int = 1, cell: int | None = None) -> None:
        super().__init__(message)
        self.line, self.cell = line, cell


class SiteOutcome(str, enum.Enum):
    """The outcome of a site."""

    REWRITTEN = "rewritten"
    REPORTED = "reported"
    LEFT = "left"


@dataclass(frozen=True)
class Site:
    """A place in the code that is tied to CUDA.

    Attributes:
        rule: the rule's id, such as ``"tensor-cuda"``; see ``anyaccel.migrate.rules.RULES``.
        outcome: whether it was rewritten, reported or left.
        line: the line of its first character, from 1.
        column: the column of its first character, from 1.
        code: the original code.
        replacement: the new code; empty unless the site was rewritten.
        reason: why it needs manual work and what to do, or why CUDA is correct there; empty if it was rewritten.
        cell: the cell number in a notebook, from 1; ``line`` is then relative to the cell.
        question: the kind of question of a report, answered or not; see ``anyaccel/migrate/answers.py``.
        can_be_ported: whether the tool rewrites a reported site if the answer is "port".
        is_guard: whether it is rewritten, and stops a CPU as it did before.
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
    is_guard: bool = False
