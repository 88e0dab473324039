"""A record of a choice: every candidate, accepted or rejected, with the reason."""

from __future__ import annotations

import logging
from typing import NamedTuple

__all__ = ["Decision", "Trace"]

_logger = logging.getLogger(__name__)


class Decision(NamedTuple):
    """The decision on one candidate."""

    candidate: str
    accepted: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.candidate}: {'accepted' if self.accepted else 'rejected'}, {self.reason}"


class Trace:
    """The decisions of one choice, in order; each is logged immediately.

    Attributes:
        subject: the subject of the choice, such as ``"the op 'cpu_adam'"``.
        decisions: the decision on each candidate.
    """

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.decisions: list[Decision] = []

    def accept(self, candidate: str, reason: str) -> None:
        """Record that a candidate is accepted."""
        self._note(Decision(candidate, True, reason), logging.INFO)

    def reject(self, candidate: str, reason: str, level: int = logging.INFO) -> None:
        """Record that a candidate is rejected."""
        self._note(Decision(candidate, False, reason), level)

    def _note(self, decision: Decision, level: int) -> None:
        self.decisions.append(decision)
        _logger.log(level, "%s: %s", self.subject, decision)

    def __str__(self) -> str:
        return "; ".join(map(str, self.decisions)) or "no candidate"
