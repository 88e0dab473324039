"""Replaces the sources of some cells in a notebook's text and keeps everything else byte for byte."""

from __future__ import annotations

import json
import re
from json.decoder import JSONDecoder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["with_sources"]

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = JSONDecoder()


def with_sources(text: str, sources: Mapping[int, str]) -> str:
    """Return a notebook's text with new sources for some cells.

    Args:
        text: the notebook; the caller has checked that it is JSON with a list of cells.
        sources: the new sources by cell number, from 1.
    """
    new = text
    for number, (start, end) in reversed(list(enumerate(_cells(text), 1))):
        if number in sources:
            place = dict(_members(text, start, end))["source"]
            new = new[: place[0]] + _written(text[place[0] : place[1]], sources[number], text) + new[place[1] :]
    return new


def _cells(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each cell."""
    start = _skipped(text, 0)
    cells = dict(_members(text, start, len(text)))["cells"]
    yield from _elements(text, *cells)


def _skipped(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place


def _members(text: str, start: int, end: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each key of an object with the start and the end of its value."""
    place = _skipped(text, start + 1)
    while place < end and text[place] != "}":
        key, place = _DECODER.raw_decode(text, place)
        place = _skipped(text, _skipped(text, place) + 1)  # the colon
        _, after = _DECODER.raw_decode(text, place)
        yield key, (place, after)
        place = _after_comma(text, after)


def _elements(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each element of a list."""
    place = _skipped(text, start + 1)
    while place < end and text[place] != "]":
        _, after = _DECODER.raw_decode(text, place)
        yield place, after
        place = _after_comma(text, after)


def _after_comma(text: str, place: int) -> int:
    place = _skipped(text, place)
    return _skipped(text, place + 1) if text[place] == "," else place


def _written(old: str, source: str, whole: str) -> str:
    """Return a source as JSON in the style of the old one: a string or a list of lines, with the same whitespace."""
    is_ascii = whole.isascii() and "\\u" in whole
    if not old.startswith("["):
        return json.dumps(source, ensure_ascii=is_ascii)
    places = list(_elements(old, 0, len(old)))
    lines = [json.dumps(line, ensure_ascii=is_ascii) for line in source.splitlines(keepends=True)]
    if not places:
        return f"[{', '.join(lines)}]"
    between = old[places[0][1] : places[1][0]] if len(places) > 1 else "," + (old[1 : places[0][0]] or " ")
    return old[: places[0][0]] + between.join(lines) + old[places[-1][1] :]
