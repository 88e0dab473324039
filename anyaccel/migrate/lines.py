"""The lines of a source, and the comments in them that say what to leave."""

from __future__ import annotations

import re

__all__ = ["ignored_lines", "lines_of"]

_IGNORE = re.compile(r"#\s*anyaccel:\s*ignore(?P<file>-file)?(?:\[(?P<rules>[\w\s,-]*)\])?")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


def lines_of(source: str) -> list[str]:
    """Return the lines of a source with their line endings, as Python counts them: a form feed does not end a line."""
    return _LINE.findall(source)


def ignored_lines(source: str) -> dict[int, set[str]]:
    """Return the rules to leave by line; line 0 is for the whole file, and an empty set means every rule."""
    found: dict[int, set[str]] = {}
    if "anyaccel:" not in source:
        return found
    for number, line in enumerate(lines_of(source), 1):
        match = _IGNORE.search(line)
        if match:
            rules = {rule.strip() for rule in (match["rules"] or "").split(",") if rule.strip()}
            found[0 if match["file"] else number] = rules
    return found
