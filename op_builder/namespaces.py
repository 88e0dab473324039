"""The namespaces of torch ops that sources define, found by reading them: torch ends a process at a second definition."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .engine.flag_files import expanded, macros_defined_by
from .engine.scan import scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["claimed_namespaces"]

_CLAIM = r"\b(?:STABLE_)?TORCH_LIBRARY\s*\(\s*(\w+)\s*,"
_DIRECTIVE = r"(?m)^[ \t]*#(?:\\\n|[^\n])*"
_COMMENT = r"""(?s)//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")"""
_NAMED = r"(?m)^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\w+)[ \t]*$"
_MACRO = r"(?m)^[ \t]*#[ \t]*define[ \t]+(\w+)\(([^)\n]*)\)((?:\\\n|[^\n])*)"


def claimed_namespaces(
    sources: Sequence[Path], include_dirs: Sequence[Path] = (), flags: Sequence[str] = ()
) -> list[str]:
    """Return the namespaces that code defines with ``STABLE_TORCH_LIBRARY``; a process allows each of them once.

    Args:
        sources: the sources; the headers that they include are read, too.
        include_dirs: where to look for these.
        flags: the compiler's flags, which may define a macro as a namespace.
    """
    contents = [file.content for file in scan(sources, include_dirs)]
    if not any(b"TORCH_LIBRARY" in content for content in contents):
        return []  # without a tenth of a second of reading
    code = _without_comments(content.decode(errors="replace").replace("\r\n", "\n") for content in contents)
    names = {**dict(re.findall(_NAMED, code)), **dict(macros_defined_by(expanded(flags)))}
    plain = re.sub(_DIRECTIVE, "", code)
    claims = [*re.findall(_CLAIM, plain), *_claimed_by_macros(code, plain)]
    return list(dict.fromkeys(_expanded(name, names) for name in claims))


def _claimed_by_macros(code: str, plain: str) -> Iterator[str]:
    """Yield the namespaces that macros with parameters define where they are used: ``#define OPS(ns, m) TORCH_LIBRARY(ns, m)``.

    Args:
        code: the sources and headers, without comments.
        plain: the same without directives.
    """
    claiming: dict[str, tuple[list[str], list[str]]] = {}
    macros = [
        (macro, [each.strip() for each in params.split(",")], body) for macro, params, body in re.findall(_MACRO, code)
    ]
    known = -1
    while known < len(claiming):  # a macro may use another
        known = len(claiming)
        for macro, params, body in macros:
            inner = [*re.findall(_CLAIM, body), *(name for one in claiming.items() for name in _passed(one, body))]
            if inner and macro not in claiming:
                claiming[macro] = (params, inner)
    for one in claiming.items():
        yield from _passed(one, plain)


def _passed(macro: tuple[str, tuple[list[str], list[str]]], text: str) -> Iterator[str]:
    """Yield the namespaces that the uses of a macro define: what is passed for a parameter, or a name of its own."""
    name, (params, inner) = macro
    for given in re.findall(rf"\b{name}\s*\(([^()]*)\)", text):
        values = dict(zip(params, (each.strip() for each in given.split(",")), strict=False))
        yield from (values.get(each, each) for each in inner)


def _without_comments(texts: Iterable[str]) -> str:
    return "\n".join(re.sub(_COMMENT, lambda found: found[1] or " ", text) for text in texts)


def _expanded(name: str, names: dict[str, str]) -> str:
    """Return what a macro stands for, if it stands for a name."""
    seen: set[str] = set()
    while name in names and name not in seen:
        seen.add(name)
        name = names[name]
    return name
