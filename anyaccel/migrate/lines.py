"""The lines of a source, and the comments in them that say what to leave."""

from __future__ import annotations

import io
import re
import tokenize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ignored_lines", "lines_of"]

_IGNORE = re.compile(r"#\s*anyaccel:\s*ignore(?P<file>-file)?(?:\[(?P<rules>[^\]]*)\])?")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


def lines_of(source: str) -> list[str]:
    """Return the lines of a source with their line endings, as Python counts them: a form feed does not end a line."""
    return _LINE.findall(source)


def ignored_lines(source: str) -> dict[int, set[str]]:
    """Return the rules to leave by line; line 0 is for the whole file, and an empty set means every rule."""
    found: dict[int, set[str]] = {}
    for line, comment in _comments(source) if "anyaccel:" in source else ():
        for match in _IGNORE.finditer(comment):
            number = 0 if match["file"] else line
            rules = {rule.strip() for rule in (match["rules"] or "").split(",") if rule.strip()}
            is_for_all = not rules or found.get(number) == set()
            found[number] = set() if is_for_all else found.get(number, set()) | rules
    return found


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment, up to what Python's tokenizer cannot read."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source, newline="").readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError):
        return
