"""Names that a module imports from ``torch.cuda`` and other modules get from it, so that the import has to stay."""

from __future__ import annotations

import re

__all__ = ["names_handed_on"]

_OF_CUDA = re.compile(r"^[ \t]*from torch\.cuda(?:\.\w+)* import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_FROM = re.compile(r"^[ \t]*from ([.\w]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_ALL = re.compile(
    r"^__all__(?:: [^=\n]+)? = [\[(]((?:\s|,|#[^\n]*\n|\"\w+\"|'\w+')*)[\])][ \t]*(?:#[^\n]*)?$", re.MULTILINE
)  # nothing but strings
_ALL_CHANGES = re.compile(r"\b__all__\b")
_NAME = re.compile(r"\w+")
_LAST = re.compile(r"\w+\Z")
_LONGEST = 80  # letters of a module's name


def names_handed_on(texts: list[tuple[str, str]]) -> set[str]:
    """Return the names that some module imports from ``torch.cuda``, and that others import or read from that module."""
    brought: dict[str, set[str]] = {}
    offered: dict[str, set[str]] = {}  # to ``from module import *``
    for module, source in texts:
        for names in _OF_CUDA.findall(source) if "torch.cuda" in source else ():
            brought.setdefault(module, set()).update(_NAME.findall(names))
    if not brought:
        return set()
    for module, source in texts:
        if module in brought:
            listed = _ALL.search(source) if len(_ALL_CHANGES.findall(source)) == 1 else None
            names = set(_NAME.findall(listed[1])) if listed is not None else brought[module]
            offered.setdefault(module, set()).update(names)
    found: set[str] = set()
    every = "|".join(sorted(set().union(*brought.values())))
    reads = re.compile(rf"(?<=\w)\.({every})\b")
    for module, source in texts:
        for origin, given in _FROM.findall(source):
            home = origin.rpartition(".")[2]
            if home in brought and home != module:
                found |= brought[home] & (offered[home] if "*" in given else set(_NAME.findall(given)))
        for read in reads.finditer(source):
            owner = _LAST.search(source, max(0, read.start() - _LONGEST), read.start())
            if owner is not None and owner[0] != module and read[1] in brought.get(owner[0], ()):
                found.add(read[1])
    return found
