"""The code in docs/ladder is the code that the tests run."""

from __future__ import annotations

from pathlib import Path

import pytest

from .ladder import PAGES, pulled


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_is_as_its_file_has_it(page: Path) -> None:
    text = page.read_text()
    assert pulled(text) == text, "run: python -m tests.docs.ladder --write"


def test_there_are_five_chapters_with_code() -> None:
    chapters = [page for page in PAGES if page.name[0].isdigit()]
    assert len(chapters) == 5
    assert all("<!-- code: " in page.read_text() or "<!-- diff: " in page.read_text() for page in chapters)
    assert sum("```diff\n" in page.read_text() for page in chapters) == 3
