"""The headers that sources include, found by reading them: what decides a build is known before anything is compiled.

A directive in any spelling counts, in a branch that is not taken too. What a macro names cannot be found so; the compiler's own
list of what it opened is compared besides (see ``opened.py``).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["Directive", "ScannedFile", "content_of", "directives", "scan"]

_SPACE = rb"[ \t\f\v]*(?:/\*(?:[^*]|\*(?!/))*\*/[ \t\f\v]*)*"
_NAME = rb'(?:"([^"\n]+)"|<([^>\n]+)>|([A-Za-z_]\w*[ \t]*\(?))?'
_DIRECTIVE = _SPACE + rb"(?:(include_next|include|import|embed)\b" + _SPACE + _NAME + rb"|(?:if|elif|define)\b([^\n]*))"
_HASH = re.compile(rb"#" + _DIRECTIVE)  # one literal to look for, which is what makes a warm load fast
_ANY_HASH = re.compile(rb"(?:#|%:|\?\?=)" + _DIRECTIVE)
_HAS = re.compile(rb"__has_(include_next|include|embed)" + _SPACE + rb"\(" + _SPACE + _NAME)
_HEADER = re.compile(rb'(["<])([\w./+-]+\.(?:h|hh|hpp|hxx|cuh|inc|inl|ipp|tcc|def))[">]')
"""What a condition or a macro may ask for by a macro that stands for ``__has_include`` or for a header's name."""


class Directive(NamedTuple):
    """What one directive asks for.

    Attributes:
        name: the header; empty where a macro names it.
        is_quoted: looked for beside the file itself first.
        macro: what names it instead; ends with ``(`` where it takes arguments.
        is_placed: what it finds depends on where the file is.
    """

    name: str
    is_quoted: bool
    macro: str
    is_placed: bool


class ScannedFile(NamedTuple):
    """A file that was read.

    Attributes:
        path: where it is, without links.
        content: of the file.
        depends_on_place: it includes by a macro's name, or what comes after its own folder, which no content tells.
    """

    path: str
    content: bytes
    depends_on_place: bool


def content_of(path: str) -> bytes:
    """Return the content of a file; empty when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def directives(content: bytes) -> list[Directive]:
    """Return what a file includes, imports, embeds, or asks for by ``__has_include``."""
    if b"\\" in content:  # a line that goes on in the next may be cut within a word
        content = content.replace(b"\\\r\n", b"").replace(b"\\\n", b"")
    is_plain = (b"%" not in content or b"%:" not in content) and (b"?" not in content or b"??=" not in content)
    pattern = _HASH if is_plain else _ANY_HASH  # looking for one byte first is ten times as fast
    found = []
    for word, quoted, bracketed, macro, condition in pattern.findall(content):
        if word:
            found.append(_asked(word, quoted, bracketed, macro))
        elif b">" in condition or b'"' in condition:
            found += [
                Directive(name.decode(errors="surrogateescape"), mark == b'"', "", False)
                for mark, name in _HEADER.findall(condition)
            ]
    if b"__has_" in content:
        found += [_asked(*match) for match in _HAS.findall(content)]
    return found


def _asked(word: bytes, quoted: bytes, bracketed: bytes, macro: bytes) -> Directive:
    name = quoted or bracketed
    is_placed = not name or word in (b"include_next", b"embed")
    return Directive(name.decode(errors="surrogateescape"), bool(quoted), macro.decode(), is_placed)


def scan(
    sources: Iterable[Path | str], include_dirs: Sequence[Path | str], further: Sequence[str] = ()
) -> Iterator[ScannedFile]:
    """Yield the sources and every header that they include, directly or not, in a stable order.

    Headers that are not found in ``include_dirs`` or, where named in quotes, beside the includer, belong to the system, to
    torch, or to directories that only the compiler is told of.

    Args:
        sources: the files to begin with.
        include_dirs: the directories to look in, in order.
        further: names to look for as if a source included them.

    Raises:
        FileNotFoundError: when a source does not exist.
    """
    pending = [os.path.realpath(source) for source in sources]  # as strings: this is most of what a warm load does
    folders = [os.path.realpath(folder) for folder in include_dirs]
    seen = set()
    looked: set[tuple[str, str]] = set()
    entries: dict[str, set[str]] = {}

    def may_hold(folder: str, name: str) -> bool:
        """Return whether a folder has an entry that a header's name begins with; for most of the system's it has none."""
        first = name.partition("/")[0]
        if folder not in entries:
            entries[folder] = {"", ".", "..", *_names_in(folder, first)}
        return first in entries[folder]

    def look(name: str, places: list[str]) -> None:
        if os.path.isabs(name):
            pending.extend([os.path.realpath(name)] if os.path.isfile(name) else [])
            return
        found = (os.path.normpath(f"{place}/{name}") for place in places if may_hold(place, name))
        pending.extend([candidate for candidate in found if os.path.isfile(candidate)][:1])

    for name in further:
        look(name, [os.getcwd(), *folders])
    for file in pending:  # which grows while it is gone through
        if file in seen:
            continue
        seen.add(file)
        with open(file, "rb", buffering=0) as opened:
            content = opened.readall()
        asked = directives(content)
        yield ScannedFile(file, content, any(one.is_placed for one in asked))
        beside = os.path.dirname(file)
        names = {(one.name, beside if one.is_quoted else "") for one in asked if one.name} - looked
        looked |= names
        for name, place in sorted(names):
            look(name, [place, *folders] if place else folders)


def _names_in(folder: str, first: str) -> list[str]:
    """Return what is in a folder; of one that may be searched and not listed, what is looked for."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return [first]
