"""docs/migrate.md has every rule, unchanged."""

from __future__ import annotations

from anyaccel.migrate.rules import RULES

from . import rules


def test_the_page_has_the_rules_as_they_are() -> None:
    page = rules.PAGE.read_text()
    assert rules.written(page) == page, "run python -m tests.docs.rules --write"
    assert all(f"### {name}\n" in page for name in RULES)
