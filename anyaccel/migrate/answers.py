"""The user's answers to the tool's questions, so that a second run, or a run in CI, does not ask again.

Every report belongs to a question class. The answer for a class is ``port`` (rewrite the place) or ``keep`` (the place
is meant for CUDA).
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
    "changes-cpu": "a question about CUDA under which a CPU would run other code than before",
    "nothing-rewritten": "a question about CUDA under which nothing needs porting",
    "answer-goes-elsewhere": "a question about CUDA whose answer the tool cannot follow",
    "depends-on-cuda": "a question about CUDA under which something stays CUDA's",
    "kernel-guard": "a guard before what only CUDA may be able to do",
    "cuda-guard": "a guard that stops the program, or a function, without CUDA",
    "device-text": 'the text "cuda" where a device may be meant',
    "own-cuda": "cuda() of an object that may have a method of its own by that name",
}
"""The question classes with two answers. Any other report belongs to the class of its rule, and can be kept."""
_ASSUMED = (
    "device-comparison",
    "depends-on-function",
    "precision",
    "changes-cpu",
    "nothing-rewritten",
    "answer-goes-elsewhere",
)


class Objection(NamedTuple):
    """Why a CUDA check is not rewritten.

    Attributes:
        question: the question class.
        reason: the reason shown to the user.
        is_of_cpu: whether it is no objection to a rewrite that a CPU answers with no; see :mod:`.exact`.
    """

    question: str
    reason: str
    is_of_cpu: bool = False


@dataclass(frozen=True)
class Decided:
    """The answers that apply to one module.

    Attributes:
        answers: ``"port"`` or ``"keep"``, by question class.
        drops_cuda_guards: whether to delete assertions and exits that only CUDA passes.
    """

    answers: Mapping[str, str] = field(default_factory=dict)
    drops_cuda_guards: bool = False

    def answer_to(self, question: str) -> str:
        """Return the answer for a question class, or an empty string."""
        return self.answers.get(question, "")


UNDECIDED = Decided()


@dataclass(frozen=True)
class Answer:
    """One answer.

    Attributes:
        question: the question class, or the id of a rule.
        answer: ``"port"`` or ``"keep"``.
        files: patterns of the paths that the answer applies to; empty for all files.
    """

    question: str
    answer: str
    files: tuple[str, ...] = ()

    def is_for(self, path: str) -> bool:
        """Return whether the answer applies to a file."""
        return not self.files or any(fnmatch(path, pattern) for pattern in self.files)


@dataclass(frozen=True)
class Answers:
    """A project's answers.

    An answer for certain files overrides an answer for all files, and a later answer overrides an earlier one.

    Attributes:
        given: the answers, in order.
        assumes_any_accelerator: whether a CUDA check without an answer is treated as a check for any accelerator.
        drops_cuda_guards: as for :class:`Decided`.
    """

    given: tuple[Answer, ...] = ()
    assumes_any_accelerator: bool = False
    drops_cuda_guards: bool = False

    def for_file(self, path: str) -> Decided:
        """Return the answers that apply to a file, whose path is relative to the project."""
        found = dict.fromkeys(_ASSUMED, "port") if self.assumes_any_accelerator else {}
        for each in sorted(self.given, key=lambda one: bool(one.files)):
            if each.is_for(path):
                found[each.question] = each.answer
        return Decided(found, self.drops_cuda_guards)
