"""Names that a module imports from ``torch.cuda`` and other modules get from it, so that the import has to stay."""

from __future__ import annotations

import re

__all__ = ["names_handed_on"]

_OF_CUDA = re.compile(r"^[ \t]*from torch\.cuda(?:\.\w+)* import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_FROM = re.compile(r"^[ \t]*from ([.\w]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_NAME = re.compile(r"\w+")


def names_handed_on(texts: list[tuple[str, str]]) -> set[str]:
    """Return the names that some module imports from ``torch.cuda``, and that others import or read from that module."""
    brought: dict[str, set[str]] = {}
    for module, source in texts:
        for names in _OF_CUDA.findall(source) if "torch.cuda" in source else ():
            brought.setdefault(module, set()).update(_NAME.findall(names))
    found: set[str] = set()
    for module, names in brought.items():
        read = re.compile(rf"\b{re.escape(module)}\.({'|'.join(sorted(names))})\b")
        for other, source in texts:
            if other == module or module not in source:
                continue
            found.update(read.findall(source))
            for origin, given in _FROM.findall(source):
                if origin.rpartition(".")[2] == module:
                    found |= names if "*" in given else names & set(_NAME.findall(given))
    return found
