"""Comments that say what to leave, and lines as Python counts them."""

from __future__ import annotations

import pytest

from anyaccel.migrate.lines import ignored_lines, lines_of
from anyaccel.migrate.source import migrate_source

CODE = "import torch\nx = x.cuda()\ntorch.cuda.synchronize()\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x  # anyaccel: ignore\n", {1: set()}),
        ("\nx  # anyaccel: ignore[a, b]\n", {2: {"a", "b"}}),
        ("x  # anyaccel: ignore[a]  # anyaccel: ignore[b]\n", {1: {"a", "b"}}),
        ("# anyaccel: ignore-file[a]\n# anyaccel: ignore-file[b]\n", {0: {"a", "b"}}),
        ("# anyaccel: ignore-file\n# anyaccel: ignore-file[b]\n", {0: set()}),
        ("x  # anyaccel: ignore[a.b]\n", {1: {"a.b"}}),  # no rule has this name
        ("'''\n# anyaccel: ignore-file\n'''\n", {}),
        ("x = '# anyaccel: ignore'\n", {}),
        ("'\x0c'\n\x0c\nx  # anyaccel: ignore\n", {3: set()}),
        ("x  # anyaccel: ignore\r\ny  # anyaccel: ignore\r\n", {1: set(), 2: set()}),
        ("x  # anyaccel: ignore\n(\n", {1: set()}),
    ],
)
def test_comments_of_a_source(source: str, expected: dict[int, set[str]]) -> None:
    assert ignored_lines(source) == expected


def test_two_comments_for_a_file_leave_both() -> None:
    source = f"# anyaccel: ignore-file[tensor-cuda]\n# anyaccel: ignore-file[streams]\n{CODE}"
    assert migrate_source(source).new == source


def test_a_docstring_about_the_comment_leaves_nothing() -> None:
    assert (
        migrate_source(f'"""Add ``# anyaccel: ignore-file`` to a file."""\n{CODE}').new.count("get_accelerator()") == 2
    )


def test_a_form_feed_and_separators_of_unicode_end_no_line() -> None:
    assert lines_of("a\x0cb\u2028c\x85d\ne\r\nf\rg") == ["a\x0cb\u2028c\x85d\n", "e\r\n", "f\r", "g"]
