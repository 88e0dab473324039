"""Finds the headers that sources include by reading them: the inputs of a build are known before it compiles anything.

Directives in any spelling count, also in branches that are not compiled. Names behind macros cannot be found this way; the
compiler's own list of opened files is also compared (see ``opened.py``).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["Directive", "ScannedFile", "content_of", "directives", "headers_defined_in", "scan"]

_SPACE = rb"[ \t\f\v]*(?:/\*(?:[^*]|\*(?!/))*\*/[ \t\f\v]*)*"
_NAME = rb'(?:"([^"\n]+)"|<([^>\n]+)>|([A-Za-z_]\w*[ \t]*\(?))?'
_DIRECTIVE = _SPACE + rb"(?:(include_next|include|import|embed)\b" + _SPACE + _NAME + rb"|(?:if|elif|define)\b([^\n]*))"
_HASH = re.compile(rb"#" + _DIRECTIVE)  # one literal to search for keeps warm loads fast
_ANY_HASH = rb"(?:#|%:|\?\?=)" + _DIRECTIVE
_HAS = rb"__has_(include_next|include|embed)" + _SPACE + rb"\(" + _SPACE + _NAME
_PLACED = (b"include_next", b"embed")
_HEADER = rb'(["<])([\w./+-]+\.(?:h|hh|hpp|hxx|cuh|inc|inl|ipp|tcc|def)|(?<=\(["<])[\w./+-]+(?=[">]\)))[">]'
"""Names in a condition or macro that may stand for ``__has_include`` or for a header's name."""
_DEFINE = rb"\bdefine(?:\s|/\*(?:[^*]|\*(?!/))*\*/)+"
_DEFINED_AS_HEADER = _DEFINE + rb"""(\w+)[ \t]+(?:"([^"\n]+)"|<([^>\n]+)>)"""


class Directive(NamedTuple):
    """The header that one directive asks for.

    Attributes:
        name: the header; empty if a macro names it.
        is_quoted: whether the search starts next to the file itself.
        macro: the macro that names it instead; ends with ``(`` if it takes arguments.
        is_placed: whether the result depends on the file's location.
        is_tested: whether it is only looked for, by ``__has_include``, and a macro names it.
    """

    name: str
    is_quoted: bool
    macro: str
    is_placed: bool
    is_tested: bool = False


class ScannedFile(NamedTuple):
    """A file that was read.

    Attributes:
        path: its path, with links resolved.
        content: its content.
        depends_on_place: whether it includes a name from a macro, or the next file of a name, which its content does not show.
        includes: the files that its directives mean, each name once; empty for what was not found.
    """

    path: str
    content: bytes
    depends_on_place: bool
    includes: tuple[str, ...] = ()


def content_of(path: str) -> bytes:
    """Return the content of a file; empty when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def directives(content: bytes) -> list[Directive]:
    """Return the names that a file includes, imports, embeds, or tests with ``__has_include``."""
    if b"\\" in content:  # a continued line may be split within a word
        content = content.replace(b"\\\r\n", b"").replace(b"\\\n", b"")
    is_plain = (b"%" not in content or b"%:" not in content) and (b"?" not in content or b"??=" not in content)
    pattern = _HASH if is_plain else re.compile(_ANY_HASH)  # searching for one byte first is ten times as fast
    found = []
    for word, quoted, bracketed, macro, condition in pattern.findall(content):
        if word:  # no function call for each: a warm load has hundreds
            name = quoted or bracketed
            is_placed = not name or word in _PLACED
            found.append(
                Directive(name.decode(errors="surrogateescape"), bool(quoted), macro.decode().rstrip(), is_placed)
            )
        elif b">" in condition or b'"' in condition:
            for mark, name in re.findall(_HEADER, condition):
                found.append(Directive(name.decode(errors="surrogateescape"), mark == b'"', "", False))
    if b"__has_" in content:
        for has in re.finditer(_HAS, content):
            word, quoted, bracketed, macro = has.groups(b"")
            name = quoted or bracketed
            is_placed = not name or word in _PLACED
            line = content[content.rfind(b"\n", 0, has.start()) + 1 : has.start()]
            is_tested = bool(macro) and not re.search(_DEFINE, line)  # else it is the parameter of a macro that tests
            found.append(
                Directive(
                    name.decode(errors="surrogateescape"), bool(quoted), macro.decode().rstrip(), is_placed, is_tested
                )
            )
    return found


def headers_defined_in(contents: Iterable[bytes]) -> tuple[dict[str, set[tuple[str, bool]]], set[str]]:
    """Return the headers that macros stand for, and whether each is quoted; and those macros that stand for nothing else."""
    found: dict[str, set[tuple[str, bool]]] = {}
    others: Counter[bytes] = Counter()
    for content in contents:
        joined = content.replace(b"\\\r\n", b"").replace(b"\\\n", b"")
        others.update(re.findall(_DEFINE + rb"(\w+)", joined))
        for macro, quoted, bracketed in re.findall(_DEFINED_AS_HEADER, joined):
            others[macro] -= 1
            found.setdefault(macro.decode(), set()).add((os.fsdecode(quoted or bracketed), bool(quoted)))
    return found, {macro for macro in found if not others[macro.encode()]}


def scan(
    sources: Iterable[Path | str], include_dirs: Sequence[Path | str], further: Sequence[str] = ()
) -> Iterator[ScannedFile]:
    """Yield the sources and every header that they include, directly or indirectly, in a stable order.

    Headers that are found neither in ``include_dirs`` nor, if quoted, next to the including file, belong to the system, to
    torch, or to directories that only the compiler knows.

    Args:
        sources: the files to start with.
        include_dirs: the directories to search, in order.
        further: names to search for as if a source included them.

    Raises:
        FileNotFoundError: when a source does not exist.
    """
    pending = [os.path.realpath(source) for source in sources]  # as strings: this is most of the work of a warm load
    folders = [os.path.realpath(folder) for folder in include_dirs]
    finder = _HeaderFinder()
    finder.look([(name, os.getcwd()) for name in further], folders, pending)
    seen = set()
    found: dict[tuple[str, str], str] = {}
    for file in pending:  # the list grows during the loop
        if file in seen:
            continue
        seen.add(file)
        with open(file, "rb", buffering=0) as opened:
            content = opened.readall()
        beside = os.path.dirname(file)
        asked: dict[tuple[str, str], None] = {}  # in the order of the content, which is the same everywhere
        is_placed = False
        for one in directives(content):
            is_placed = is_placed or one.is_placed
            if one.name:
                asked[one.name, beside if one.is_quoted else ""] = None
        found |= finder.look([one for one in asked if one not in found], folders, pending)
        yield ScannedFile(file, content, is_placed, tuple([found[one] for one in asked]))


class _HeaderFinder:
    """Finds headers, and caches directory listings: most system headers are in none of the folders."""

    def __init__(self) -> None:
        self._entries: dict[str, set[str]] = {}

    def look(
        self, names: Iterable[tuple[str, str]], folders: Sequence[str], found: list[str]
    ) -> dict[tuple[str, str], str]:
        """Add the first location of each header, and return it; the search starts next to its includer if one is given."""
        places: dict[tuple[str, str], str] = {}
        for name, beside in names:
            places[name, beside] = ""
            if os.path.isabs(name):
                if os.path.isfile(name):
                    places[name, beside] = os.path.realpath(name)
                    found.append(places[name, beside])
                continue
            first = name.partition("/")[0]
            for folder in (beside, *folders) if beside else folders:
                held = self._entries.get(folder)
                if held is None:
                    held = self._entries[folder] = {"", ".", "..", *_names_in(folder, first)}
                if first in held and os.path.isfile(candidate := os.path.normpath(f"{folder}/{name}")):
                    places[name, beside] = candidate
                    found.append(candidate)
                    break
        return places


def _names_in(folder: str, first: str) -> list[str]:
    """Return the names in a folder; if it cannot be listed, only the name that is searched for."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return [first]
