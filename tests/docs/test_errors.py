"""Error messages say what to do, and none says that it expected "it"."""

from __future__ import annotations

import re

import pytest

from . import errors

_SAYS_NOTHING = re.compile(r"expected (it|all|some|success)[.;]|got no [^;]+; expected one\\.|Fix: \\.")
_VERBS = (
    "change|check|choose|clone|convert|correct|detach|fix|move|name|pad|pass|rename|repair|report|reshape|see|set|use"
)
_NOTHING = (
    r"(it|them|that|these|those|one|all|another|either|each)( of (it|them|these|those|the two))?"
    r"|the (call|list|name|names|path|rank|shape|shapes|size|sizes|value|values|argument|output|input|tensor|tensors|file)"
)
_HOLLOW = re.compile(
    rf"(unset or )?((reshape|move) or )?({_VERBS})( or ({_VERBS}))? ({_NOTHING})(, or (unset|leave) it)?"
    r"|(unset or )?correct \S+|(call it|run|wait) again|see that.*call again"
)
"""Advice that a reader of the message could have given: it names no call, value, file or setting."""
_WITHOUT_A_FIX = (
    "AttributeError", "IsADirectoryError", "InterruptedError", "PermissionError", "OSError", "SystemExit", "fail",
    "throw_backend_error", "throw_errno",
)  # fmt: skip
"""Python's and the system's own kinds of error, a command's usage, and earlier failures of a group."""


def test_errors_of_every_language_are_found() -> None:
    kinds = {error.kind for error in errors.errors()}
    assert {
        "OpLoadError",
        "BuildError",
        "ValueError",
        "CommError",
        "refuse",
        "TORCH_CHECK",
        "UnsupportedError",
    } <= kinds
    assert len(errors.errors()) > 300


def _advice(error: errors.Error) -> str:
    """Return what a message says to do, without a remark after it."""
    _, is_whole, fix = error.text.partition("Fix: ")
    if not is_whole and error.kind.endswith(("refuse", "refusal", "_check")):
        fix = error.text.rpartition(" | ")[2]
    return re.split(r"\.(?= [A-Z]|$|\{)", fix.strip())[0]


def test_advice_is_more_than_a_verb() -> None:
    hollow = [f"{error.file}: {error.text}" for error in errors.errors() if _HOLLOW.fullmatch(_advice(error))]
    hollow += [f"{file}: {fix}" for file, fix in errors.fixes() if _HOLLOW.fullmatch(fix)]
    assert not hollow, "\n".join(hollow)


@pytest.mark.parametrize(
    "advice",
    ["correct it", "unset or correct it", "reshape or convert them", "move one of them", "choose one of these",
     "correct the call", "correct filter_ccs", "pass one", "call it again", "use one of them", "correct sources()"],
)  # fmt: skip
def test_hollow_advice_is_recognised(advice: str) -> None:
    assert _HOLLOW.fullmatch(advice)


@pytest.mark.parametrize(
    "advice",
    ["pass x.clone()", "report it as a bug", "use one of: rms_norm", "set ROCM_HOME to its folder", "pass k=2"],
)
def test_concrete_advice_is_accepted(advice: str) -> None:
    assert not _HOLLOW.fullmatch(advice)


def test_every_message_says_what_to_do() -> None:
    assert not [f"{error.file}: {error.text}" for error in errors.errors() if not _says_what_to_do(error)]


def _says_what_to_do(error: errors.Error) -> bool:
    is_whole = " failed" in error.text or " timed out" in error.text
    is_elsewhere = error.text.endswith(f"; {errors.VALUE}.")  # the expected value and the fix are one value
    has_fix = "Fix: " in error.text or not is_whole or is_elsewhere or error.kind in _WITHOUT_A_FIX
    return has_fix and _SAYS_NOTHING.search(error.text) is None


@pytest.mark.parametrize("text", ["reading a failed: got 1.", "reading a failed: got 1; expected it. Fix: pass 2."])
def test_a_message_that_does_not_say_it_is_found(text: str) -> None:
    assert not _says_what_to_do(errors.Error("a.py", "ValueError", text))
