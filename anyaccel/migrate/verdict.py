"""Predicts whether each program of a run starts on a CPU after the files are written, and what stops it otherwise.

A program is a file with ``if __name__ == "__main__"``, or a file with a loop outside its functions that no other file
imports. The analysis is conservative: every function whose name is mentioned counts as called, and a method counts as
called if its class and its name are mentioned in any reachable code. Code under a condition that names CUDA counts as
unreachable on a CPU.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cpu_reach import answers_in, finds_cuda, is_about_cuda, swallows
from .lines import lines_of
from .program_graph import CodeScope, Graph, SourceFile
from .site import SiteOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .files import FileResult
    from .site import Site

__all__ = ["Verdict", "verdicts"]

_HARMLESS = re.compile(
    r"\.(is_available|device_count|manual_seed(_all)?|seed(_all)?|empty_cache|(max_)?memory_(allocated|reserved)|is_initialized)$"
)
_RAISING = ("current-device", "graphs", "memory", "nvtx", "rng", "runtime-call", "streams", "typed-tensor")
_OF_MAIN = re.compile(r"__name__ == '__main__'|'__main__' == __name__")


@dataclass(frozen=True)
class Verdict:
    """Whether a program starts on a CPU.

    Attributes:
        path: the program's file.
        where: the file of the first site that stops it, whose place there are ``line`` and ``code``; None if none is known.
        is_certain: whether it always stops when it reaches that site; otherwise that depends on values.
    """

    path: Path
    where: Path | None = None
    line: int = 0
    code: str = ""
    is_certain: bool = True

    @property
    def stops(self) -> str | None:
        """Return the place of the first site that stops the program, as ``file:line``."""
        return None if self.where is None else f"{self.where}:{self.line}"

    @property
    def answer(self) -> str:
        """``yes``, ``no`` or ``cannot tell``."""
        return "yes" if self.stops is None else "no" if self.is_certain else "cannot tell"

    def __str__(self) -> str:
        because = "" if self.stops is None else f", because of {self.stops}: {self.code}"
        return f"{self.path}: starts on a CPU: {self.answer}{because}"


def verdicts(results: Iterable[FileResult]) -> list[Verdict]:
    """Return the verdict on every program among the files of a run."""
    graph = Graph([file for result in results if (file := _read(result)) is not None])
    imported = {each for file in graph.files for each in graph.imported_by(file)}
    programs = [file for file in graph.files if file.is_guarded or (file.has_loop and file not in imported)]
    return [_verdict(graph, program) for program in programs]


def _read(result: FileResult) -> SourceFile | None:
    if result.path.suffix != ".py":
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(result.old)
    except (SyntaxError, ValueError):
        return None
    file = SourceFile(result.path, {}, {}, {}, lines=lines_of(result.old), answers=answers_in(tree))
    _fill(file, tree, "", "")
    stopping = {(site.line, site.column): (site, is_certain) for site, is_certain in _stopping(result.sites)}
    _place(file, tree, "", stopping)
    return file


def _stopping(sites: Iterable[Site]) -> Iterator[tuple[Site, bool]]:
    """Yield the unchanged sites that raise on a CPU, last first, and whether each one raises for all arguments."""
    for site in reversed(list(sites)):
        is_type = site.rule == "typed-tensor" and "(" not in site.code
        is_fine = site.outcome is SiteOutcome.REWRITTEN and not site.is_guard
        if is_fine or "is used as a value" in site.reason or is_type:
            continue  # torch defines its CUDA classes on every machine; only creating an instance fails
        is_call = site.rule == "tensor-cuda" and ".cuda(" in site.code
        is_raising = site.rule in _RAISING and not _HARMLESS.search(site.code.partition("(")[0])
        if site.is_guard or site.question == "cuda-guard" or is_call or is_raising:
            yield site, True
        elif site.question in ("device-text", "kernel-guard") or site.rule == "comm-backend":
            yield site, False


def _fill(file: SourceFile, node: ast.AST, name: str, owner: str) -> None:
    """Record the names in a scope, its functions and methods as scopes of their own, and the bases of its classes."""
    scope = file.scopes.setdefault(name, CodeScope(owner=owner))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{owner}.{child.name}" if owner and not name else child.name
            if name and not owner:
                scope.names.add(child.name)
            _fill(file, child, inner, owner)
        elif isinstance(child, ast.ClassDef):
            file.bases[child.name] = {ast.unparse(base).rpartition(".")[2] for base in child.bases}
            for each in child.body:
                _fill_member(file, each, child.name)
        else:
            _mention(file, scope, child)
            file.is_guarded |= isinstance(child, ast.If) and bool(_OF_MAIN.search(ast.unparse(child.test)))
            file.has_loop |= not name and isinstance(child, ast.For | ast.While)
            _fill(file, child, name, owner)


def _fill_member(file: SourceFile, member: ast.stmt, owner: str) -> None:
    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
        _fill(file, member, f"{owner}.{member.name}", owner)
    elif isinstance(member, ast.ClassDef):
        file.bases[member.name] = {ast.unparse(base).rpartition(".")[2] for base in member.bases}
        for each in member.body:
            _fill_member(file, each, member.name)
    else:
        _fill(file, member, "", "")  # runs when the module is imported


def _mention(file: SourceFile, scope: CodeScope, node: ast.AST) -> None:
    if isinstance(node, ast.Name):
        scope.names.add(node.id)
    elif isinstance(node, ast.Attribute):
        scope.attributes.add(node.attr)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            file.imports[alias.asname or alias.name] = (alias.name, "")
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            name = f"*{module}" if alias.name == "*" else alias.asname or alias.name
            file.imports[name] = (module, alias.name)


_Stopping = dict[tuple[int, int], tuple["Site", bool]]  # by line and column, from 1


def _place(file: SourceFile, node: ast.AST, name: str, stopping: _Stopping, owner: str = "", around: str = "") -> None:
    """Add each site that stops a program to its scope, except sites that only CUDA reaches.

    Args:
        file: where to add them.
        node: what to search.
        name: the scope that the node is, or is in.
        stopping: the sites; those that are added are removed.
        owner: the class around the node.
        around: the scope around the function that the node is.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.Try) and child in node.body and swallows(node):
            for each in [each for each in stopping if child.lineno <= each[0] <= (child.end_lineno or each[0])]:
                del stopping[each]
        inner, of_class = name, owner
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{owner}.{child.name}" if isinstance(node, ast.ClassDef) else child.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_in_body(node, child):
            inner = around  # defaults and decorators are evaluated where the function is defined
        elif isinstance(child, ast.ClassDef):
            of_class = child.name
        place = (getattr(child, "lineno", 0), file.column(child))
        is_cudas = isinstance(child, ast.If | ast.IfExp) and is_about_cuda(child.test, file.answers)
        is_cudas |= isinstance(child, ast.BoolOp) and finds_cuda(child)
        is_cudas |= isinstance(child, ast.keyword) and child.arg in _OF_DDP  # None on a CPU after a rewrite
        is_own = isinstance(node, ast.ClassDef) and isinstance(child, ast.FunctionDef) and child.name == "cuda"
        if not is_cudas and not is_own:
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            # first, because what starts where a node starts may be within it
            _place(file, child, inner, stopping, of_class, name if is_function else around)
        elif isinstance(child, ast.If):
            if not _has_denial(child.test):
                _place(file, ast.Module(child.orelse, []), inner, stopping, of_class, around)  # what a CPU runs
            guard = next((each for each in stopping if _is_guard(child, each, stopping[each][0])), None)
            if guard is not None:
                file.scopes.setdefault(inner, CodeScope()).sites.append(stopping.pop(guard))
        if isinstance(child, ast.expr) and place in stopping and not is_cudas:
            file.scopes.setdefault(inner, CodeScope()).sites.append(stopping.pop(place))


def _has_denial(test: ast.expr) -> bool:
    """Return whether a test for CUDA may be true on a CPU."""
    return any(
        isinstance(each, ast.Not | ast.NotEq | ast.IsNot | ast.NotIn | ast.Lt | ast.LtE)
        or (isinstance(each, ast.Constant) and each.value in ("cpu", 0, None))
        for each in ast.walk(test)
    )


def _is_in_body(function: ast.FunctionDef | ast.AsyncFunctionDef, child: ast.AST) -> bool:
    return isinstance(child, ast.stmt) and child in function.body


def _is_guard(test: ast.If, place: tuple[int, int], site: Site) -> bool:
    """Return whether a site is the question of a guard that stops the program without CUDA."""
    is_guard = site.is_guard or site.question == "cuda-guard"
    return is_guard and test.lineno <= place[0] <= (test.test.end_lineno or test.lineno)


_OF_DDP = ("device_ids", "output_device")


def _verdict(graph: Graph, program: SourceFile) -> Verdict:
    """Search breadth-first from the program's top level through everything that it may call."""
    waiting: deque[tuple[SourceFile, str]] = deque([(program, "")])
    seen: set[tuple[SourceFile, str]] = set()
    classes: list[tuple[SourceFile, str]] = []
    attributes: set[str] = set()
    doubtful: Verdict | None = None
    while waiting:
        place = file, name = waiting.popleft()
        scope = file.scopes.get(name)
        if place in seen or scope is None:
            continue
        seen.add(place)
        for site, is_certain in sorted(scope.sites, key=lambda each: each[0].line):
            found = Verdict(program.path, file.path, site.line, site.code.splitlines()[0], is_certain)
            if is_certain:
                return found
            doubtful = doubtful or found
        if not name:
            waiting.extend((each, "") for each in graph.imported_by(file))
        made = _made(graph, file, scope, waiting, classes)
        news = scope.attributes - attributes
        attributes |= news
        for home, owner in [*made, *(classes if news else ())]:
            waiting.extend((home, f"{owner}.{method}") for method in home.methods(owner, attributes))
        classes += made
    return doubtful or Verdict(program.path)


def _made(
    graph: Graph,
    file: SourceFile,
    scope: CodeScope,
    waiting: deque[tuple[SourceFile, str]],
    known: list[tuple[SourceFile, str]],
) -> list[tuple[SourceFile, str]]:
    """Queue the functions that a scope mentions, and return the classes, with their bases, that are not yet known."""
    made: list[tuple[SourceFile, str]] = []
    mentioned = [(file, name) for name in sorted(scope.names | scope.attributes)]
    for home, name in mentioned:
        found = graph.defined(home, name)
        if found is None:
            continue
        if found[1] in found[0].bases:
            if found not in known and found not in made:
                made.append(found)
                mentioned += [(found[0], base) for base in sorted(found[0].bases[found[1]])]
        else:
            waiting.append(found)
    return made
