"""Writes the rules into docs/migrate.md: ``python -m tests.docs.rules --write``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from anyaccel.migrate.answers import TITLES
from anyaccel.migrate.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "migrate.md"
_QUESTIONS = re.compile(r"(<!-- questions: .+? -->\n).*(<!-- end of questions -->)", re.DOTALL)
_PLACE = re.compile(r"(<!-- rules: .+? -->\n).*(<!-- end of rules -->)", re.DOTALL)


def text_of_rules() -> str:
    parts = []
    for name, rule in RULES.items():
        lines = [f"- {line}" for line in rule.before.splitlines()] + [f"+ {line}" for line in rule.after.splitlines()]
        example = "\n".join(["```diff", *lines, "```", "", ""]) if lines else ""
        parts.append(f"### {name}\n\n{rule.title[0].upper()}{rule.title[1:]}.\n\n{example}{rule.others}\n\n")
    return "\n" + "".join(parts)


def text_of_questions() -> str:
    lines = ["| question | what it is |", "|---|---|", *(f"| `{name}` | {title} |" for name, title in TITLES.items())]
    return "\n" + "\n".join(lines) + "\n\n"


def written(page: str) -> str:
    page = _QUESTIONS.sub(lambda match: match[1] + text_of_questions() + match[2], page)
    return _PLACE.sub(lambda match: match[1] + text_of_rules() + match[2], page)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("expected --write")
    PAGE.write_text(written(PAGE.read_text()))
