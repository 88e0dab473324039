"""Each page says in its first sentence who it is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


EXAMPLES = DOCS.parent / "examples"
PAGES = [file for file in sorted(DOCS.rglob("*.md")) if file.parent != DOCS / "examples"]  # those include the READMEs
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n\n", re.DOTALL)


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted(EXAMPLES.glob("*/README.md"))], ids=lambda page: f"{page.parent.name}/{page.name}"
)
def test_the_first_sentence_says_who_it_is_for(page: Path) -> None:
    title, blank, first = FRONT_MATTER.sub("", page.read_text(encoding="utf-8")).split("\n")[:3]
    assert title.startswith("# ")
    assert not blank
    assert first.startswith("For ")


def test_the_readme_shows_installation_and_a_sample_first() -> None:
    lines = (DOCS.parent / "README.md").read_text(encoding="utf-8").splitlines()
    assert next(number for number, line in enumerate(lines) if "pip install" in line) <= 12
    assert lines.index("```python") <= 12
