"""What the files of a migration tell one another: which classes have a ``cuda`` or ``pin_memory`` of their own."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Project", "survey"]

_CLASS = re.compile(r"^[ \t]*class[ \t]+(\w+)[ \t]*\(([^)]*)\)", re.MULTILINE)
_NAME = re.compile(r"\w+")
_INTERESTING = re.compile(r"def (?:cuda|pin_memory)\(|\((?:\w+\.)*\w*Module\)\s*:")


@dataclass
class Project:
    """Classes of all files together.

    Attributes:
        own_method: by method (``"cuda"``, ``"pin_memory"``), the classes that define it, so that a call of it may be theirs.
        modules: the classes that are torch's modules, by their base.
    """

    own_method: dict[str, set[str]] = field(default_factory=lambda: {"cuda": set(), "pin_memory": set()})
    modules: set[str] = field(default_factory=set)


def survey(sources: Iterable[str]) -> Project:
    """Return what some sources define; one that is not Python tells nothing."""
    project = Project()
    texts = list(sources)
    for source in texts:
        if _INTERESTING.search(source):
            _survey_one(source, project)
    _add_heirs(project, texts)
    return project


def _add_heirs(project: Project, sources: list[str]) -> None:
    """Count classes that derive from one with a method of its own along with it."""
    bases = {name: set(_NAME.findall(given)) for source in sources for name, given in _CLASS.findall(source)}
    for owners in project.own_method.values():
        while owners and (heirs := {name for name, given in bases.items() if given & owners} - owners):
            owners.update(heirs)


def _survey_one(source: str, project: Project) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file's own, such as invalid escapes
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            if any(ast.unparse(base).endswith("Module") for base in node.bases):
                project.modules.add(node.name)
            for member in node.body:
                if not isinstance(member, ast.FunctionDef) or member.name not in project.own_method:
                    continue
                if len(member.args.args) - len(member.args.defaults) <= 1:  # besides self, all may be left out
                    project.own_method[member.name].add(node.name)
