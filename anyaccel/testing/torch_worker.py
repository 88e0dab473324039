"""Runs torch's cases on one device, or the checks of an accelerator's members.

:mod:`.torch_tests` starts it as a process, so that a crash ends only one test.

It writes a line of JSON for each event to the file descriptor that it is given: the names of its tests, the test that begins,
and the outcome of each.
"""

from __future__ import annotations

import fnmatch
import gc
import json
import os
import sys
import time
import unittest
from typing import TYPE_CHECKING, Any

from .checks import CHECKS
from .outcome import Outcome, run_check
from .target import TargetError, accelerator_of

if TYPE_CHECKING:
    from ..accelerator import DeepSpeedAccelerator

__all__ = ["main"]

_WHY_CHARACTERS = 600


class _Kept(unittest.TestResult):
    """Keeps the outcome of the test that ran last, and what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: tuple[str, str] = ("", "")

    def addSuccess(self, _test: Any) -> None:  # noqa: N802  # unittest's names
        self.kept = (Outcome.OK.value, "")

    def addUnexpectedSuccess(self, _test: Any) -> None:  # noqa: N802
        self.kept = (Outcome.OK.value, "torch expects it to fail")

    def addSkip(self, _test: Any, reason: str) -> None:  # noqa: N802
        self.kept = ("skipped", reason)

    def addExpectedFailure(self, _test: Any, _err: Any) -> None:  # noqa: N802
        self.kept = ("skipped", "torch expects it to fail")

    def addFailure(self, _test: Any, err: Any) -> None:  # noqa: N802
        self.kept = (Outcome.WRONG.value, _told(err[1]))

    def addError(self, _test: Any, err: Any) -> None:  # noqa: N802
        missing = isinstance(_cause(err[1]), NotImplementedError)
        self.kept = ((Outcome.UNSUPPORTED if missing else Outcome.WRONG).value, _told(err[1]))


class _Member:
    """The check of a member, run as a test of torch's is."""

    def __init__(self, accelerator: DeepSpeedAccelerator, name: str) -> None:
        self._accelerator = accelerator
        self._name = name

    def run(self, kept: _Kept) -> None:
        result = run_check(self._accelerator, self._name)
        kept.kept = (result.outcome.value, result.why)


def main() -> int:
    """Run the tests that a JSON object on the command line describes; return the exit status."""
    asked = json.loads(sys.argv[1])
    sys.argv[1:] = []  # torch's framework reads the command line, too
    with os.fdopen(asked["pipe"], "w", encoding="utf-8", buffering=1) as pipe:
        try:
            tests = _tests(asked)
        except TargetError as error:
            print(json.dumps({"error": str(error)}), file=pipe)
            return 2
        except ImportError as error:
            said = f"importing torch's test framework failed: {error}. Fix: pip install expecttest numpy"
            print(json.dumps({"error": said}), file=pipe)
            return 2
        gc.freeze()  # what was imported stays: no search for garbage needs to look at it
        print(json.dumps({"tests": list(tests)}), file=pipe)
        for name, test in list(tests.items())[asked["first"] :]:
            print(json.dumps({"begins": name}), file=pipe)
            kept, began = _Kept(), time.monotonic()
            test.run(kept)
            outcome, why = kept.kept
            seconds = round(time.monotonic() - began, 3)
            print(json.dumps({"ends": name, "outcome": outcome, "why": why, "seconds": seconds}), file=pipe)
    return 0


def _tests(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the tests of this worker: every so many of those whose names match."""
    accelerator = accelerator_of(asked["target"])
    if asked["members"]:
        return {name: _Member(accelerator, name) for name in CHECKS}
    device_type = accelerator.device_name()
    import torch

    from .torch_cases import make_tests  # takes seconds, and the vendor's package must have registered its device

    made = make_tests(device_type, tuple(getattr(torch, name) for name in asked["dtypes"]))
    names = [name for name in made if fnmatch.fnmatchcase(name, asked["pattern"])]
    share, of = asked["share"]
    return {name: made[name] for name in names[share::of]}


def _cause(error: BaseException) -> BaseException:
    """Return the exception behind those in which torch's framework names the sample and the command."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _told(error: BaseException) -> str:
    """Return the type and the first lines of the message of what caused an exception."""
    cause = _cause(error)
    text = f"{type(cause).__name__}: {cause}".partition("\n\nTo execute this test")[0].strip()
    return text if len(text) <= _WHY_CHARACTERS else text[:_WHY_CHARACTERS] + " …"


if __name__ == "__main__":
    sys.exit(main())
