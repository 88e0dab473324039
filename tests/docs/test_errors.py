"""Error messages say what to do, and none says that it expected "it"."""

from __future__ import annotations

import re

import pytest

from . import errors

_SAYS_NOTHING = re.compile(r"expected (it|all|some|success)[.;]|got no [^;]+; expected one\\.|Fix: \\.")
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


@pytest.mark.parametrize("error", errors.errors(), ids=lambda error: f"{error.file}:{error.kind}")
def test_a_message_says_what_to_do(error: errors.Error) -> None:
    is_whole = " failed" in error.text or " timed out" in error.text
    assert not _SAYS_NOTHING.search(error.text), error.text
    is_elsewhere = error.text.endswith(f"; {errors.VALUE}.")  # the expected value and the fix are one value
    assert "Fix: " in error.text or not is_whole or is_elsewhere or error.kind in _WITHOUT_A_FIX, error.text
