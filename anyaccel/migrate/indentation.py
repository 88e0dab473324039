"""Indentation of tabs and spaces together, which LibCST writes in another way than it read it."""

from __future__ import annotations

import ast
import re
import warnings
from difflib import SequenceMatcher

from .lines import lines_of

__all__ = ["is_mixed", "with_indentation"]

_MIXED = re.compile(r"^(?: +\t|\t+ )", re.MULTILINE)
_INDENTATION = re.compile(r"[ \t]*")


def is_mixed(source: str) -> bool:
    """Return whether a line begins with tabs and spaces."""
    return _MIXED.search(source) is not None


def with_indentation(source: str, read: str, new: str) -> str:
    """Return new code with the indentation of its source.

    Args:
        source: the code as it was.
        read: the same, as LibCST writes it.
        new: the changed code, as LibCST writes it.

    Returns:
        New code whose lines begin as in the source, or the new code itself if that would be another program.
    """
    old, same, lines = lines_of(source), lines_of(read), lines_of(new)
    if read == source or len(old) != len(same):
        return new
    for tag, first, last, begin, end in SequenceMatcher(None, same, lines, autojunk=False).get_opcodes():
        if tag == "equal":
            lines[begin:end] = old[first:last]
        elif tag == "replace" and last - first == end - begin:
            for place, number in zip(range(begin, end), range(first, last), strict=True):
                if _indentation(same[number]) == _indentation(lines[place]):
                    lines[place] = _indentation(old[number]) + lines[place].lstrip(" \t")
    text = "".join(lines)
    return text if _tree(text) == _tree(new) else new


def _indentation(line: str) -> str:
    found = _INDENTATION.match(line)
    return found[0] if found is not None else ""


def _tree(code: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the program's own
            return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
