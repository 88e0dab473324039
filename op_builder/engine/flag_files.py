"""The files that compiler and linker flags name, and a check for flags whose files cannot be tracked."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import OpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "expanded",
    "files_named_by",
    "folders_of_assembler",
    "headers_defined_by",
    "headers_included_by",
    "macros_defined_by",
    "refuse_untracked_flags",
]

_SUSPECT = ("-fprofile", "-fauto-profile", "-fmodule")  # no regular expression: every warm load would compile it
_UNTRACKED = r"-f(profile-use|profile-instr-use|auto-profile|modules?\b|modules-|module-)"
_LISTS = ("-M", "-MM", "-MMD", "-MG")
_LONG_LISTS = ("--write-", "--user-dep", "--dep", "--print-missing")  # GCC takes any beginning of its long options
_SPECS = r"-{1,2}specs=(.+)"
_INCLUDED = r"(?:-include|--include=?)(.*)"
_DEFINED = r"(?:-D|--define-macro=?)(.*)"


def refuse_untracked_flags(op: str, flags: Iterable[str]) -> None:
    """Reject flags that make a compiler read files that it does not list.

    Raises:
        OpError: naming the flag.
    """
    for flag in expanded(flags):
        if flag in _LISTS or flag.startswith(_LONG_LISTS) or (flag.startswith("-Wp,") and ",-M" in flag):
            msg = (
                f"building the op '{op}' failed: got the flag {flag!r}, which changes the list of headers that the compiler "
                f"writes; expected none like it. Fix: remove it; the headers are listed, and tracked, without it."
            )
            raise OpError(msg)
        specs = re.fullmatch(_SPECS, flag) if "specs=" in flag else None
        is_unknown = (
            flag.startswith(_SUSPECT) and re.match(_UNTRACKED, flag) and not os.path.isfile(flag.partition("=")[2])
        )
        if is_unknown or (specs is not None and _includes(specs[1])):
            msg = (
                f"building the op '{op}' failed: the flag {flag!r} makes the compiler read files that it does not "
                f"list, so changes to them would go unnoticed. Fix: remove the flag, or pass a flag that names "
                f"the file."
            )
            raise OpError(msg)


def _includes(specs: str) -> bool:
    """Return whether a spec file includes other files; GCC's own do not count."""
    return os.path.isfile(specs) and "%include" in Path(specs).read_text(encoding="utf-8", errors="replace")


def expanded(flags: Iterable[str]) -> list[str]:
    """Return flags with response files replaced by their content."""
    words = []
    for flag in flags:
        words += expanded(_words_of(flag[1:])) if flag.startswith("@") and os.path.isfile(flag[1:]) else [flag]
    return words


def files_named_by(flags: Iterable[str]) -> set[str]:
    """Return the absolute paths in flags and in response files."""
    found: set[str] = set()
    pending = list(flags)
    while pending:
        flag = pending.pop()
        for piece in (flag, *re.split(r"[,=]", flag)):
            path = piece[piece.find("/") :] if "/" in piece else ""
            if path and path not in found and os.path.isfile(path):
                found.add(path)
                if f"@{path}" in flag:
                    pending += _words_of(path)
    return found


def headers_defined_by(flags: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the macros that flags define as a header's name, and that name in its quotes or brackets."""
    yield from ((macro, value) for macro, value in macros_defined_by(flags) if value[:1] in ('"', "<"))


def macros_defined_by(flags: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the macros that flags define, ``-DA=1`` and ``-D A=1``, and their values."""
    words = iter(flags)
    for flag in words:
        defined = re.fullmatch(_DEFINED, flag)
        if defined is not None:
            macro, _, value = (defined[1] or next(words, "")).partition("=")
            yield macro.strip(), value


def headers_included_by(flags: Iterable[str]) -> Iterator[str]:
    """Yield the headers that flags include before a source: ``-include a.h`` and ``--include=a.h``."""
    words = iter(flags)
    for flag in words:
        named = re.fullmatch(_INCLUDED, flag)
        if named is not None:
            yield named[1] or next(words, "")


def folders_of_assembler(flags: Iterable[str]) -> list[str]:
    """Return the absolute folders in which only the assembler looks for files: ``-Wa,-I,/here`` and ``-Xassembler -I/here``."""
    words = iter(expanded(flags))
    pieces: list[str] = []
    for word in words:
        flag = word.removeprefix("-Xcompiler=").removeprefix("--compiler-options=")  # nvcc's
        if flag.startswith("-Wa,"):
            pieces += expanded(flag.split(",")[1:])
        elif flag in ("-Xassembler", "--for-assembler"):
            pieces.append(next(words, ""))
        elif flag.startswith("--for-assembler="):
            pieces.append(flag.partition("=")[2])
    places = (
        following if word == "-I" else word[2:]
        for word, following in itertools.pairwise([*pieces, ""])
        if word.startswith("-I")
    )
    return [os.path.normpath(place) for place in places if os.path.isabs(place)]


def _words_of(response_file: str) -> list[str]:
    try:
        return shlex.split(Path(response_file).read_text(encoding="utf-8", errors="surrogateescape"))
    except ValueError:
        return []
