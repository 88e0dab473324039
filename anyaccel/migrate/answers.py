"""What a person has answered to the tool's questions, so that a second run, or CI, asks nothing.

A report belongs to a class of questions. Its answer is ``port`` (rewrite the place) or ``keep`` (it is rightly CUDA's).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ANSWERS", "ANY_ACCELERATOR", "TITLES", "UNDECIDED", "Answer", "Answers", "Decided", "Objection"]

ANSWERS = ("port", "keep")
ANY_ACCELERATOR = "any-accelerator"
TITLES = {
    "device-comparison": "a comparison with CUDA, on whose answer other code depends",
    "depends-on-function": "a question about CUDA under which a function runs that the tool does not know",
    "precision": "a question about CUDA that chooses a precision or a number",
    "nothing-rewritten": "a question about CUDA under which nothing needs porting",
    "answer-goes-elsewhere": "a question about CUDA whose answer the tool cannot follow",
    "depends-on-cuda": "a question about CUDA under which something stays CUDA's",
    "kernel-guard": "a guard before what only CUDA may be able to do",
    "cuda-guard": "a guard that stops the program, or a function, without CUDA",
    "device-text": 'the text "cuda" where a device may be meant',
    "own-cuda": "cuda() of an object that may have a method of its own by that name",
}
"""The classes of questions with two answers; a report of any other kind belongs to the class of its rule, and can be kept."""
_ASSUMED = ("device-comparison", "depends-on-function", "precision", "nothing-rewritten", "answer-goes-elsewhere")


class Objection(NamedTuple):
    """Why a question is not rewritten: its class, and the reason for a person."""

    question: str
    reason: str


@dataclass(frozen=True)
class Decided:
    """The answers for one module.

    Attributes:
        answers: ``"port"`` or ``"keep"`` by class of questions.
        drops_cuda_guards: whether assertions and exits that only CUDA passes are deleted.
    """

    answers: Mapping[str, str] = field(default_factory=dict)
    drops_cuda_guards: bool = False

    def answer_to(self, question: str) -> str:
        """Return the answer to a class of questions, or an empty text."""
        return self.answers.get(question, "")


UNDECIDED = Decided()


@dataclass(frozen=True)
class Answer:
    """One answer.

    Attributes:
        question: the class of questions, or the id of a rule.
        answer: ``"port"`` or ``"keep"``.
        files: patterns of the paths that it is for; empty for all.
    """

    question: str
    answer: str
    files: tuple[str, ...] = ()

    def is_for(self, path: str) -> bool:
        """Return whether the answer is for a file."""
        return not self.files or any(fnmatch(path, pattern) for pattern in self.files)


@dataclass(frozen=True)
class Answers:
    """A project's answers; one for a file counts before one for all, and a later one before an earlier one.

    Attributes:
        given: the answers, in order.
        assumes_any_accelerator: whether questions about CUDA are about any accelerator wherever there is no answer.
        drops_cuda_guards: as for :class:`Decided`.
    """

    given: tuple[Answer, ...] = ()
    assumes_any_accelerator: bool = False
    drops_cuda_guards: bool = False

    def for_file(self, path: str) -> Decided:
        """Return what counts in a file, whose path is relative to the project."""
        found = dict.fromkeys(_ASSUMED, "port") if self.assumes_any_accelerator else {}
        for each in sorted(self.given, key=lambda one: bool(one.files)):
            if each.is_for(path):
                found[each.question] = each.answer
        return Decided(found, self.drops_cuda_guards)
