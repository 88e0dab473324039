"""Predicts whether each program of a run starts on a CPU after the files are written, and what stops it otherwise.

A program is ``__main__.py``, a file with ``if __name__ == "__main__"``, or a file that no other one imports and that has a
loop outside its functions or ends with a call of one. It is taken to run without options. Every function whose name is
mentioned counts as called, and a method counts as called if its class and its name are mentioned in any reachable code.
What a CPU does not reach is in :mod:`.cpu_reach`. Not followed: names that are put together at run time, other processes,
and entry points of a package.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cpu_reach import CpuReach
from .cpu_values import CpuValues
from .lines import lines_of
from .program_graph import Graph, SourceFile
from .program_scopes import MAIN, ScopeFiller, is_guard_of_program
from .site import SiteOutcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from .files import FileResult
    from .program_graph import CodeScope
    from .site import Site

__all__ = ["Verdict", "verdicts"]

_HARMLESS = re.compile(
    r"\.(is_available|device_count|manual_seed(_all)?|seed(_all)?|empty_cache|(max_)?memory_(allocated|reserved)|is_initialized)$"
)
_RAISING = ("current-device", "graphs", "memory", "nvtx", "rng", "runtime-call", "streams", "typed-tensor")


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
    read = []
    answers: dict[str, set[object]] = {}
    known: Counter[str] = Counter()
    attributes: set[str] = set()
    for result in results:
        tree = _tree(result)
        if tree is not None:
            file = _file(result, tree)
            values = CpuValues(tree, _new_code(result.sites), file.column)
            read.append((result, tree, file, values))
            known.update(values.defined)
            attributes |= values.set_in_modules
            for name, value in values.answers().items() if result.sites else ():
                answers.setdefault(name, set()).add(value)
                known[name] -= 1
    shared = {name: next(iter(values)) for name, values in answers.items() if len(values) == 1 and not known[name]}
    for result, tree, file, values in read:
        values.use(shared, attributes)
        stopping = {(site.line, site.column): (site, is_certain) for site, is_certain in _stopping(result.sites)}
        ScopeFiller(file, tree, CpuReach(tree, values), stopping).fill(tree, "", "")
    graph = Graph([file for _, _, file, _ in read])
    imported = {each for file in graph.files for each in graph.imported_by(file)}
    programs = [file for file in graph.files if file.is_guarded or (file.is_script and file not in imported)]
    return [_verdict(graph, program) for program in programs]


def _tree(result: FileResult) -> ast.Module | None:
    if result.path.suffix != ".py":
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(result.old)
    except (SyntaxError, ValueError):
        return None


def _file(result: FileResult, tree: ast.Module) -> SourceFile:
    functions = {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    file = SourceFile(result.path, lines=lines_of(result.old))
    file.is_guarded = result.path.name == "__main__.py" or any(map(is_guard_of_program, tree.body))
    file.is_script = any(map(_loops, tree.body)) or any(_calls_one(each, functions) for each in tree.body[-1:])
    return file


def _loops(line: ast.stmt) -> bool:
    """Return whether a statement at a module's top is, or contains, a loop."""
    is_definition = isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return not is_definition and any(isinstance(each, ast.For | ast.While) for each in ast.walk(line))


def _calls_one(line: ast.stmt, functions: set[str]) -> bool:
    """Return whether a statement calls a function of the module: ``main()``."""
    call = line.value if isinstance(line, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in functions


def _new_code(sites: Iterable[Site]) -> dict[tuple[int, int, str], ast.expr]:
    """Return the new code of each rewritten expression, by its place and its old code."""
    found: dict[tuple[int, int, str], ast.expr] = {}
    for site in sites:
        try:
            old, new = (ast.parse(each, mode="eval").body for each in (site.code, site.replacement))
        except (SyntaxError, ValueError):
            continue
        found[site.line, site.column, ast.unparse(old)] = new
    return found


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


def _verdict(graph: Graph, program: SourceFile) -> Verdict:
    """Search breadth-first from the program's top level through everything that it may call."""
    waiting: deque[tuple[SourceFile, str]] = deque([(program, ""), (program, MAIN)])
    seen: set[tuple[SourceFile, str]] = set()
    classes: dict[tuple[SourceFile, str], None] = {}
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
        waiting.extend((each, "") for each in graph.loaded(file, scope.loaded))
        made = _made(graph, file, scope, waiting, classes)
        news = scope.attributes - attributes
        attributes |= news
        for home, owner in made:
            waiting.extend((home, f"{owner}.{method}") for method in home.methods(owner, attributes))
        for home, owner in classes if news else ():
            waiting.extend((home, f"{owner}.{method}") for method in home.methods_of.get(owner, set()) & news)
        classes.update(dict.fromkeys(made))
    return doubtful or Verdict(program.path)


def _made(
    graph: Graph,
    file: SourceFile,
    scope: CodeScope,
    waiting: deque[tuple[SourceFile, str]],
    known: Collection[tuple[SourceFile, str]],
) -> list[tuple[SourceFile, str]]:
    """Queue the functions that a scope mentions, and return the classes, with their bases, that are not yet known."""
    made: list[tuple[SourceFile, str]] = []
    mentioned = [(file, name, False) for name in sorted(scope.names)]
    mentioned += [(file, name, True) for name in sorted(scope.attributes - scope.names)]
    for home, mention, is_anywhere in mentioned:
        for found in graph.defined(home, mention, is_anywhere=is_anywhere):
            where, name = found
            if name not in where.bases:
                waiting.append(found)
            elif found not in known and found not in made:
                made.append(found)
                mentioned += [(where, base, False) for base in sorted(where.bases[name])]
    return made
