"""Each page says in its first sentence who it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", [file.name for file in sorted(DOCS.glob("*.md"))])
def test_the_first_sentence_says_who_it_is_for(page: str) -> None:
    title, blank, first = (DOCS / page).read_text(encoding="utf-8").split("\n")[:3]
    assert title.startswith("# ")
    assert not blank
    assert first.startswith("For ")
