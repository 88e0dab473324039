"""The imports, functions and classes of a run's files: which file defines what a name means in another one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator
    from pathlib import Path

    from .site import Site

__all__ = ["CodeScope", "Graph", "SourceFile"]

_IMPLICIT = re.compile(r"^(__\w+__|forward|run|setup)$")


@dataclass
class CodeScope:
    """A function, or the code of a file outside its functions and classes.

    Attributes:
        names: the names that it mentions.
        attributes: the attributes that it mentions.
        owner: the class of a method.
        sites: the sites in it that stop a program on a CPU, and whether each one certainly does.
    """

    names: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    owner: str = ""
    sites: list[tuple[Site, bool]] = field(default_factory=list)


@dataclass(eq=False)
class SourceFile:
    """A file with its scopes by name: a function, ``"Class.method"``, or ``""`` for the code outside of them."""

    path: Path
    scopes: dict[str, CodeScope]
    bases: dict[str, set[str]]
    imports: dict[str, tuple[str, str]]
    is_guarded: bool = False
    has_loop: bool = False
    lines: list[str] = field(default_factory=list)
    answers: set[str] = field(default_factory=set)

    def column(self, node: ast.AST) -> int:
        """Return the column of a node in characters, from 1; :mod:`ast` counts bytes of UTF-8, from 0."""
        line = self.lines[node.lineno - 1] if hasattr(node, "lineno") else ""
        column = getattr(node, "col_offset", -1)
        return column + 1 if line.isascii() else len(line.encode()[:column].decode(errors="replace")) + 1

    def methods(self, owner: str, attributes: set[str]) -> Iterator[str]:
        """Yield the methods of a class that are mentioned, or that Python or torch calls implicitly."""
        for name in self.scopes:
            of_class, _, method = name.partition(".")
            if of_class == owner and (method in attributes or _IMPLICIT.match(method)):
                yield method


class Graph:
    """Resolves the names in a file to functions and classes.

    Args:
        files: all files of a run.
    """

    def __init__(self, files: list[SourceFile]) -> None:
        self.files = files
        self._by_module: dict[str, SourceFile] = {}
        self._by_end: dict[str, SourceFile] = {}
        for file in files:
            parts = file.path.with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            self._by_module.setdefault(".".join(parts), file)
            for start in range(len(parts) - 1):  # a package may start below the folder of the paths
                self._by_end.setdefault(".".join(parts[start:]), file)
        self._imported: dict[SourceFile, list[SourceFile]] = {}

    def find(self, asking: SourceFile, module: str) -> SourceFile | None:
        """Return the file of a module that another file imports; a dotted name may match in any folder of the run."""
        folder = asking.path.parts[:-1]
        name = module.lstrip(".")
        level = len(module) - len(name)
        if level:
            package = folder[: len(folder) - level + 1]
            return (
                self._by_module.get(".".join([*package, name] if name else package)) if level <= len(folder) else None
            )
        found = self._by_module.get(".".join([*folder, module])) or self._by_module.get(module)
        return self._by_end.get(module) if found is None and "." in module else found

    def imported_by(self, file: SourceFile) -> list[SourceFile]:
        """Return the files that a file imports, or imports from, with their packages."""
        if file not in self._imported:
            modules = {name for each in file.imports.values() for name in _modules(*each)}
            found = dict.fromkeys(self.find(file, module) for module in sorted(modules))
            self._imported[file] = [each for each in found if each is not None]
        return self._imported[file]

    def defined(self, file: SourceFile, name: str) -> tuple[SourceFile, str] | None:
        """Return the file that defines a function or class, and its name there; None if no file of the run does."""
        homes = [file] if name in file.imports else [file, *self.imported_by(file)]
        return next((found for home in homes if (found := self._exported(home, name, set())) is not None), None)

    def _exported(
        self, file: SourceFile, name: str, seen: set[tuple[SourceFile, str]]
    ) -> tuple[SourceFile, str] | None:
        """Return what a name of a module is, also if the module imports it."""
        if name in file.scopes or name in file.bases:
            return file, name
        if (file, name) in seen:
            return None
        seen.add((file, name))
        origins = [file.imports[name]] if name in file.imports else []
        origins += [(module, name) for module, original in file.imports.values() if original == "*"]
        for module, original in origins:
            home = self.find(file, module)
            found = None if home is None or not original else self._exported(home, original, seen)
            if found is not None:
                return found
        return None


def _modules(module: str, original: str) -> Iterator[str]:
    """Yield the modules that an import runs, or may run: packages, the module, and a module of that name in it."""
    dots = module[: len(module) - len(module.lstrip("."))]
    parts = module[len(dots) :].split(".") if len(module) > len(dots) else []
    if dots:
        yield dots
    if original:
        parts.append(original)
    for end in range(1, len(parts) + 1):
        yield dots + ".".join(parts[:end])
