"""Writes the rules into docs/migrate.md: ``python -m tests.docs.rules --write``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from anyaccel.migrate.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "migrate.md"
_PLACE = re.compile(r"(<!-- rules: .+? -->\n).*(<!-- end of rules -->)", re.DOTALL)


def text_of_rules() -> str:
    parts = []
    for name, rule in RULES.items():
        lines = [f"- {line}" for line in rule.before.splitlines()] + [f"+ {line}" for line in rule.after.splitlines()]
        example = "\n".join(["```diff", *lines, "```", "", ""]) if lines else ""
        parts.append(f"### {name}\n\n{rule.title[0].upper()}{rule.title[1:]}.\n\n{example}{rule.others}\n\n")
    return "\n" + "".join(parts)


def written(page: str) -> str:
    return _PLACE.sub(lambda match: match[1] + text_of_rules() + match[2], page)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("expected --write")
    PAGE.write_text(written(PAGE.read_text()))
