"""The imports, functions and classes of a run's files: which file defines what a name means in another one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator
    from pathlib import Path

    from .site import Site

__all__ = ["CodeScope", "Graph", "SourceFile"]

_IMPLICIT = re.compile(r"^(__\w+__|forward|run|setup)$")
_SETS_PATH = re.compile(r"\bsys\.path\b")


@dataclass
class CodeScope:
    """A function, or the code of a file outside its functions and classes.

    Attributes:
        names: the names that it mentions.
        attributes: the attributes that it mentions.
        owner: the class of a method.
        sites: the sites in it that stop a program on a CPU, and whether each one certainly does.
        loaded: its imports whose errors nothing catches: a module, and a name there, or an empty string.
    """

    names: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    owner: str = ""
    sites: list[tuple[Site, bool]] = field(default_factory=list)
    loaded: set[tuple[str, str]] = field(default_factory=set)


@dataclass(eq=False)
class SourceFile:
    """A file.

    Attributes:
        path: its path.
        scopes: by name: a function, ``"Class.method"``, or ``""`` for the code outside of them.
        bases: the names of the bases of its classes.
        imports: what each imported name may be: a module, and the name there, or an empty string.
        is_guarded: whether it is a program by ``if __name__ == "__main__"`` or its name.
        is_script: whether it is a program unless another file imports it: it has a loop outside its functions, or calls one.
        lines: its lines.
    """

    path: Path
    scopes: dict[str, CodeScope] = field(default_factory=dict)
    bases: dict[str, set[str]] = field(default_factory=dict)
    imports: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    is_guarded: bool = False
    is_script: bool = False
    lines: list[str] = field(default_factory=list)

    @cached_property
    def sets_path(self) -> bool:
        """Whether it adds a folder to those from which Python imports."""
        return any(_SETS_PATH.search(line) for line in self.lines)

    def column(self, node: ast.AST) -> int:
        """Return the column of a node in characters, from 1; :mod:`ast` counts bytes of UTF-8, from 0."""
        line = self.lines[node.lineno - 1] if hasattr(node, "lineno") else ""
        column = getattr(node, "col_offset", -1)
        return column + 1 if line.isascii() else len(line.encode()[:column].decode(errors="replace")) + 1

    def methods(self, owner: str, attributes: set[str]) -> Iterator[str]:
        """Yield the methods of a class that are mentioned, or that Python or torch calls implicitly."""
        for method in self.methods_of.get(owner, ()):
            if method in attributes or _IMPLICIT.match(method):
                yield method

    @cached_property
    def methods_of(self) -> dict[str, set[str]]:
        """The names of the methods of its classes."""
        found: dict[str, set[str]] = {}
        for name in self.scopes:
            owner, _, method = name.partition(".")
            if method:
                found.setdefault(owner, set()).add(method)
        return found

    @cached_property
    def stars(self) -> list[str]:
        """The modules from which it imports all names."""
        return sorted({module for key, given in self.imports.items() if key.startswith("*") for module, _ in given})


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
        self._by_name: dict[str, list[SourceFile]] = {}
        for file in files:
            name = file.path.parent.name if file.path.name == "__init__.py" else file.path.stem
            self._by_name.setdefault(name, []).append(file)
        self._defined: dict[tuple[SourceFile, str, bool], list[tuple[SourceFile, str]]] = {}
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
        if found is not None or "." in module:
            return found or self._by_end.get(module)
        named = self._by_name.get(module, [])  # PYTHONPATH, or the program, may add its folder
        is_open = len(named) == 1 and (named[0].path.name == "__init__.py" or asking.sets_path)
        return named[0] if is_open else None

    def imported_by(self, file: SourceFile) -> list[SourceFile]:
        """Return the files that a file imports, or imports from, with their packages."""
        if file not in self._imported:
            self._imported[file] = self.loaded(file, {each for given in file.imports.values() for each in given})
        return self._imported[file]

    def loaded(self, file: SourceFile, imports: set[tuple[str, str]]) -> list[SourceFile]:
        """Return the files that some imports of a file run, with their packages."""
        modules = {name for each in imports for name in _modules(*each)}
        found = dict.fromkeys(self.find(file, module) for module in sorted(modules))
        return [each for each in found if each is not None]

    def defined(self, file: SourceFile, name: str, *, is_anywhere: bool) -> list[tuple[SourceFile, str]]:
        """Return the files that define a function or class of that name, and its name there; several imports may bring one.

        Args:
            file: the file that mentions it.
            name: the name.
            is_anywhere: whether it is an attribute, as of a module, so that each imported file may be meant.
        """
        key = file, name, is_anywhere
        if key not in self._defined:
            homes = [file] if name in file.imports and not is_anywhere else [file, *self.imported_by(file)]
            found = [each for home in homes if (each := list(self._exported(home, name, set())))]
            self._defined[key] = [one for each in (found if is_anywhere else found[:1]) for one in each]
        return self._defined[key]

    def _exported(
        self, file: SourceFile, name: str, seen: set[tuple[SourceFile, str]]
    ) -> Iterator[tuple[SourceFile, str]]:
        """Yield what a name of a module may be, also if the module imports it, or answers for it by ``__getattr__()``."""
        if name in file.scopes or name in file.bases:
            yield file, name
        if (file, name) in seen:
            return
        seen.add((file, name))
        for module, original in sorted(file.imports.get(name, ())):
            home = self.find(file, module)
            if home is not None and original:
                found = list(self._exported(home, original, seen))
                yield from found or ([(home, "__getattr__")] if "__getattr__" in home.scopes else [])
        for module in file.stars:
            home = self.find(file, module)
            yield from self._exported(home, name, seen) if home is not None else ()


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
