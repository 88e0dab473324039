"""The tool's self-check: nothing in a file that spells CUDA is skipped silently."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from .device_text import NAMES_NCCL
from .lines import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .site import Site

__all__ = ["Passed", "passed_over"]

_SUSPECT = re.compile(r"\bcuda\b|nccl", re.IGNORECASE)
_STRING = re.compile(r"""^(?P<prefix>[a-z]*)(?P<quote>\"{3}|'{3}|"|')""", re.IGNORECASE)
_BREAKS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
_QUIET = (tokenize.NL, tokenize.COMMENT)
_MIDDLE = getattr(tokenize, "FSTRING_MIDDLE", None)  # Python 3.12 and later


@dataclass(frozen=True)
class Passed:
    """A token that no site covers.

    Attributes:
        line: the line, from 1; in a notebook, relative to the cell.
        column: the column, from 1.
        text: the token.
        cell: the cell number in a notebook.
    """

    line: int
    column: int
    text: str
    cell: int | None = None


def passed_over(source: str, sites: Iterable[Site]) -> tuple[Passed, ...]:
    """Return every ``.cuda``, every string that starts with ``cuda`` and every ``nccl`` of the code that is in no site.

    This reads the source's tokens, not the tree that the rules use. Comments and docstrings do not count as code.
    """
    lines = lines_of(source)
    covered = _Covered(sites, lines)
    suspects = [
        (number, match.start() + 1)
        for number, line in enumerate(lines, 1)
        for match in _SUSPECT.finditer(line.partition("#")[0])
    ]
    if all(covered.holds(*place) for place in suspects):
        return ()
    return tuple(each for each in _tokens(source) if not covered.holds(each.line, each.column))


class _Covered:
    """The ranges of the source that sites cover."""

    def __init__(self, sites: Iterable[Site], lines: Sequence[str]) -> None:
        self._by_line: dict[int, list[tuple[int, float]]] = {}
        for site in sites:
            parts = site.code.split("\n")
            for number, text in enumerate(parts):
                start = site.column if number == 0 else 0
                end = start + len(text) if number == len(parts) - 1 else float("inf")
                if number and site.line + number <= len(lines):  # a site's code lacks the indentation of its block
                    end += max(0, lines[site.line + number - 1].find(text.lstrip()) - (len(text) - len(text.lstrip())))
                self._by_line.setdefault(site.line + number, []).append((start, end))

    def holds(self, line: int, column: int) -> bool:
        return any(start <= column <= end for start, end in self._by_line.get(line, ()))


def _tokens(source: str) -> Iterator[Passed]:
    """Yield the tokens that a site must cover."""
    try:
        found = [each for each in tokenize.generate_tokens(io.StringIO(source).readline) if each.type not in _QUIET]
    except (tokenize.TokenError, SyntaxError):
        return  # LibCST can parse it, but this Python cannot
    is_import = False
    others = _other_modules(found)
    for number, token in enumerate(found):
        if number == 0 or found[number - 1].type in _BREAKS:
            is_import = token.string in ("import", "from")
        before = found[number - 1] if number else None
        after = found[number + 1] if number + 1 < len(found) else None
        is_after_dot = before is not None and before.string == "."
        line, column = token.start
        if token.type == tokenize.NAME:
            if is_import and (number < 2 or found[number - 2].string != "torch"):
                continue  # another module with that name
            if is_after_dot and token.string == "cuda" and _root(found, number) in others:
                continue
            if is_after_dot and (token.string == "cuda" or NAMES_NCCL.search(token.string)):
                yield Passed(line, column + 1, f".{token.string}")
        elif token.type in (tokenize.STRING, _MIDDLE):
            is_alone = (before is None or before.type in _BREAKS) and (after is None or after.type == tokenize.NEWLINE)
            text = _STRING.sub("", token.string) if token.type == tokenize.STRING else token.string
            if not is_alone and (text.startswith("cuda") or "nccl" in text.lower()):
                yield Passed(line, column + 1, token.string)


def _root(found: list[tokenize.TokenInfo], number: int) -> str:
    """Return the first name of a dotted name: ``cp`` of ``cp.cuda``."""
    while number >= 2 and found[number - 1].string == "." and found[number - 2].type == tokenize.NAME:
        number -= 2
    return found[number].string


def _other_modules(found: list[tokenize.TokenInfo]) -> set[str]:
    """Return the names that ``import a``, ``import a.b`` and ``import a as b`` bind to modules that are not torch's."""
    others: set[str] = set()
    for number, token in enumerate(found):
        is_first = number == 0 or found[number - 1].type in _BREAKS
        if not (is_first and token.string == "import"):
            continue
        line = "".join(
            f"{each.string} " for each in takewhile(lambda each: each.type != tokenize.NEWLINE, found[number + 1 :])
        )
        for each in line.replace(" . ", ".").split(","):
            module, _, name = each.strip().partition(" as ")
            root = module.partition(".")[0]
            others |= {name or root} - {"torch"} if root != "torch" else set()
    return others
