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

_SPACE = rb"(?:[ \t\f\v]|/\*(?:[^*]|\*(?!/))*\*/)*"
_WORDS = rb"(?:include_next|include|import|embed)\b"
_NAME = rb'(?:"([^"\n]+)"|<([^>\n]+)>|([A-Za-z_]\w*[ \t]*\(?))?'
_HAS = rb"__has_(?:include(?:_next)?|embed)" + _SPACE + rb"\(" + _SPACE + _NAME
_HASH = re.compile(rb"#" + _SPACE + _WORDS + _SPACE + _NAME + rb"|" + _HAS)
_ANY_HASH = re.compile(rb"(?:#|%:|\?\?=)" + _SPACE + _WORDS + _SPACE + _NAME + rb"|" + _HAS)
_PLACED = re.compile(rb"include_next|embed")
_CONDITION = re.compile(rb"#" + _SPACE + rb"(?:if|elif|define)\b[^\n]*")
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
    if b"\\\n" in content or b"\\\r\n" in content:  # a line that goes on in the next may be cut within a word
        content = content.replace(b"\\\r\n", b"").replace(b"\\\n", b"")
    pattern = _ANY_HASH if b"%:" in content or b"??=" in content else _HASH
    found = []
    for match in pattern.finditer(content):
        quoted, bracketed, macro, has_quoted, has_bracketed, has_macro = match.groups()
        name = os.fsdecode(quoted or has_quoted or bracketed or has_bracketed or b"")
        by = os.fsdecode(macro or has_macro or b"")
        found.append(Directive(name, bool(quoted or has_quoted), by, not name or bool(_PLACED.search(match[0]))))
    for line in _CONDITION.findall(content):
        if b">" in line or b'"' in line:
            found += [Directive(os.fsdecode(name), mark == b'"', "", False) for mark, name in _HEADER.findall(line)]
    return found


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
        with open(file, "rb") as opened:
            content = opened.read()
        asked = directives(content)
        yield ScannedFile(file, content, any(one.is_placed for one in asked))
        for one in asked:
            if one.name:
                look(one.name, [os.path.dirname(file), *folders] if one.is_quoted else folders)


def _names_in(folder: str, first: str) -> list[str]:
    """Return what is in a folder; of one that may be searched and not listed, what is looked for."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return [first]
