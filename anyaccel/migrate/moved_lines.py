"""Where the places of a file are after a rewrite, which adds imports and wraps lines."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from .lines import lines_of
from .site import SiteOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .files import FileResult
    from .verdict import Verdict

__all__ = ["moved", "moved_verdict"]

_NAMED = re.compile(r"\b(lines? )(\d+)( to (\d+))?")


def moved(result: FileResult) -> FileResult:
    """Return a file's result with its reported sites, and the lines in their reasons, where they are in the new text."""
    places = [each for each in result.sites if each.cell is None and each.outcome is SiteOutcome.REPORTED]
    if result.new == result.old or not places:
        return result  # comparing long texts takes a while
    after = _lines_after(result.old, result.new)

    def in_reason(found: re.Match[str]) -> str:
        last = f" to {after(int(found[4]))}" if found[4] else ""
        return f"{found[1]}{after(int(found[2]))}{last}"

    there = {each: replace(each, line=after(each.line), reason=_NAMED.sub(in_reason, each.reason)) for each in places}
    sites = tuple(there.get(each, each) for each in result.sites)
    return replace(result, sites=sites)


def moved_verdict(verdict: Verdict, results: Iterable[FileResult]) -> Verdict:
    """Return a verdict with the place that stops its program, and the code there, where they are in the new text."""
    result = next((each for each in results if each.path == verdict.where), None)
    if result is None or result.new == result.old:
        return verdict
    line = _lines_after(result.old, result.new)(verdict.line)
    return replace(verdict, line=line, code=lines_of(result.new)[line - 1].strip())


def _lines_after(old: str, new: str) -> Callable[[int], int]:
    """Return a function that returns the number in the new text of a line of the old text."""
    olds, news = lines_of(old), lines_of(new)
    blocks = SequenceMatcher(None, olds, news, autojunk=False).get_opcodes()

    def after(line: int) -> int:
        for _, start, end, new_start, new_end in blocks:
            if start < line <= end:
                return min(new_start + line - start, max(new_end, 1))
        return line

    return after
