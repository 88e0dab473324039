"""Fills a file's scopes: what each function mentions on a CPU, and the sites in it that stop a program there."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from .program_graph import CodeScope
from .site import Site, SiteOutcome

if TYPE_CHECKING:
    from .cpu_reach import CpuReach
    from .program_graph import SourceFile

__all__ = ["MAIN", "ScopeFiller", "Stopping"]

MAIN = "<main>"
"""The scope of what only a program runs, and no file that imports it."""

Stopping = dict[tuple[int, int], tuple[Site, bool]]
"""The sites that stop a program on a CPU, and whether they certainly do, by line and column from 1."""

_OF_MAIN = re.compile(r"__name__ == '__main__'|'__main__' == __name__|__name__ in \(")
_KEEPS = re.compile(r"^(torch|functools|pytest|contextlib|abc|typing)\b|\.(setter|getter|deleter)$")
_REGISTERS = re.compile(r"(^|[._])(command|register\w*|callback|group|entry\w*|task|route|app|main)\b", re.IGNORECASE)
_CALLS_METHODS = re.compile(r"(^|\.)(Fire|CLI|LightningCLI)$")


def is_guard_of_program(line: ast.stmt) -> bool:
    """Return whether a statement is ``if __name__ == "__main__":``."""
    return isinstance(line, ast.If) and _OF_MAIN.search(ast.unparse(line.test)) is not None


def _may_call(decorator: ast.expr) -> bool:
    """Return whether a decorator may keep a function for others to call: ``@bus.on("start")``, ``@register``."""
    text = ast.unparse(decorator)
    return not _KEEPS.search(text) and ("." in text or _REGISTERS.search(text) is not None)


class ScopeFiller:
    """Fills the scopes of a file.

    Args:
        file: the file.
        tree: its code.
        reach: what of it a CPU does not run.
        stopping: the sites that stop a program; those that get into a scope are removed.
    """

    def __init__(self, file: SourceFile, tree: ast.Module, reach: CpuReach, stopping: Stopping) -> None:
        self._file, self._reach, self._stopping = file, reach, stopping
        self._methods = {
            each.name: {member.name for member in each.body if isinstance(member, ast.FunctionDef)}
            for each in tree.body
            if isinstance(each, ast.ClassDef)
        }
        for each in (*reach.dead, *reach.swallowed):
            stopping.pop(self._place(each), None)
        self._stops = {each for each in reach.stops if each not in reach.dead and each not in reach.swallowed}

    def _place(self, node: ast.AST) -> tuple[int, int]:
        return getattr(node, "lineno", 0), self._file.column(node)

    def fill(self, node: ast.AST, name: str, owner: str) -> None:
        """Record what a node mentions, and what is in it, in its scope; functions in it are scopes of their own.

        Args:
            node: the node.
            name: the scope that the node is, or is in; empty for what is outside of all functions.
            owner: the class of a method.
        """
        scope = self._file.scopes.setdefault(name, CodeScope(owner=owner))
        for child in ast.iter_child_nodes(node):
            if child in self._reach.dead:
                continue
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(child, name, owner, scope)
            elif isinstance(child, ast.ClassDef):
                self._class(child, name)
            elif isinstance(child, ast.If) and not name and is_guard_of_program(child):
                self._record(child.test, scope)
                self.fill(ast.Module(child.body, []), MAIN, "")
                self.fill(ast.Module(child.orelse, []), name, "")
            else:
                self._record(child, scope)
                self.fill(child, name, owner)

    def _function(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, owner: str, scope: CodeScope
    ) -> None:
        inner = f"{owner}.{function.name}" if owner and not name else function.name
        for part in (*function.decorator_list, function.args):  # evaluated where the function is defined
            self._record(part, scope)
            self.fill(part, name, owner)
        if any(map(_may_call, function.decorator_list)):
            scope.names.add(function.name)
        own = self._file.scopes.setdefault(inner, CodeScope(owner=owner))
        for line in function.body:
            if line in self._reach.dead:
                continue
            if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(line, inner, owner, own)
            elif isinstance(line, ast.ClassDef):
                self._class(line, inner)
            else:
                self._record(line, own)
                self.fill(line, inner, owner)

    def _class(self, made: ast.ClassDef, name: str) -> None:
        bases = [*made.bases, *(each.value for each in made.keywords)]
        self._file.bases[made.name] = {ast.unparse(base).rpartition(".")[2] for base in bases}
        scope = self._file.scopes.setdefault(name, CodeScope())
        for part in (*made.decorator_list, *bases):
            self._record(part, scope)
            self.fill(part, name, "")
        for member in made.body:
            if member in self._reach.dead:
                continue
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(member, "", made.name, scope)
            elif isinstance(member, ast.ClassDef):
                self._class(member, "")
            else:
                self._record(member, self._file.scopes[""])
                self.fill(member, "", "")  # runs when the module is imported

    def _record(self, node: ast.AST, scope: CodeScope) -> None:
        """Record what one node mentions, and the site that it is."""
        is_swallowed = node in self._reach.swallowed
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, scope, is_swallowed=is_swallowed)
        if is_swallowed:
            return
        if isinstance(node, ast.Name):
            scope.names.add(node.id)
        elif isinstance(node, ast.Attribute):
            scope.attributes.add(node.attr)
        elif isinstance(node, ast.Call) and _CALLS_METHODS.search(ast.unparse(node.func)):
            for given in node.args:
                scope.attributes |= self._methods.get(ast.unparse(given), set())
        if isinstance(node, ast.Call):
            self._by_text(node, scope)
        if isinstance(node, ast.expr) and self._place(node) in self._stopping:
            scope.sites.append(self._stopping.pop(self._place(node)))
        elif node in self._stops and isinstance(node, ast.stmt):
            code = self._file.lines[node.lineno - 1].strip()
            site = Site("runtime-call", SiteOutcome.LEFT, node.lineno, self._file.column(node), code)
            scope.sites.append((site, True))

    def _by_text(self, call: ast.Call, scope: CodeScope) -> None:
        """Record what a text names: ``getattr(x, "name")``, ``importlib.import_module("name")``."""
        texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        called = ast.unparse(call.func).rpartition(".")[2]
        if called == "getattr" and texts:
            scope.attributes.add(texts[0])
        elif called in ("import_module", "__import__") and texts:
            self._file.imports.setdefault(texts[0], set()).add((texts[0], ""))
            scope.loaded.add((texts[0], ""))

    def _import(self, node: ast.Import | ast.ImportFrom, scope: CodeScope, *, is_swallowed: bool) -> None:
        module = "" if isinstance(node, ast.Import) else "." * node.level + (node.module or "")
        for alias in node.names:
            if isinstance(node, ast.Import):
                name, meant = alias.asname or alias.name, (alias.name, "")
            else:
                name, meant = f"*{module}" if alias.name == "*" else alias.asname or alias.name, (module, alias.name)
            self._file.imports.setdefault(name, set()).add(meant)
            if not is_swallowed:
                scope.loaded.add(meant)
