"""Finds the assertions and exits that only CUDA passes, and deletes them if the user asked for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .answers import Objection
from .lines import lines_of
from .nodes import library_of
from .source_view import dotted

if TYPE_CHECKING:
    from .regions import Regions
    from .source_view import SourceView

__all__ = ["advice_on", "guard_around", "is_program", "of_guards_named", "without_lines", "writes_kernels"]

_LANGUAGES = ("cupy", "cutlass", "deep_gemm", "numba", "pycuda", "tilelang", "triton")
_OF_KERNEL = re.compile(r"[Cc]uda|CUDA|[Kk]ernel")
_CUDNNS = re.compile(r"[\"']aten::cudnn_\w+[\"']")
_ENTRY = re.compile(r"^if .*__main__", re.MULTILINE)
_SAYS = re.compile(
    r"""[rfbu]*["']|(?:[\w.]*\.)?(?:print|echo|secho|rule|debug|info|warn|warning|error|exception|critical|fatal|log|write|flush"""
    r"|print_help|fail|skip|exit|_exit|quit|abort|Exit)\("
)
_TEXTS = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
_ANY = re.compile(r"(device_count\(\)\s*(> 0|>= 1|!= 0)|(==|is) (False|True))$")


def guard_around(view: SourceView, asked: cst.CSTNode) -> cst.CSTNode | None:
    """Return the statement that only stops the program if CUDA is missing; None if it does anything else.

    It is ``assert torch.cuda.is_available()``, or ``if not torch.cuda.is_available():`` with a block that ends the
    program or the function. A statement is not a guard if its test has other conditions, if it is an ``elif``, or if it
    has an ``elif`` or ``else``.
    """
    inner: cst.CSTNode = asked
    for around in view.ancestors(asked):
        is_not = isinstance(around, cst.UnaryOperation) and isinstance(around.operator, cst.Not)
        if isinstance(around, cst.Assert) and around.test is inner:
            line = view.parent(around)
            is_alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
            return line if is_alone else None
        if isinstance(around, cst.If) and around.test is inner:
            is_elif = isinstance(view.parent(around), cst.If)
            return None if around.orelse is not None or is_elif or not _only_stops(view, around) else around
        is_any = isinstance(around, cst.Comparison) and _ANY.search(view.code(around)) is not None
        if not is_not and not is_any:
            return None  # ``device_count() == 8`` requires more than CUDA
        inner = around
    return None


def _only_stops(view: SourceView, guard: cst.If) -> bool:
    """Return whether a block only says what is missing before it stops, and does not do the work in another way."""
    return all(_is_of_stop(view, each) for each in guard.body.body)


def _is_of_stop(view: SourceView, node: cst.CSTNode) -> bool:
    if isinstance(node, cst.If):
        other = node.orelse.body.body if isinstance(node.orelse, cst.Else) else filter(None, [node.orelse])
        return all(_is_of_stop(view, each) for each in (*node.body.body, *other))
    if isinstance(node, cst.SimpleStatementLine):
        return all(_is_of_stop(view, each) for each in node.body)
    is_said = isinstance(node, cst.Expr) and _SAYS.match(view.code(node)) is not None
    return (
        is_said
        or _is_message(view, node)
        or isinstance(node, cst.Raise | cst.Return | cst.Pass | cst.Continue | cst.Break)
    )


def _is_message(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a statement stores a text of several words, such as what is raised next; a device's name is none."""
    return isinstance(node, cst.Assign) and isinstance(node.value, _TEXTS) and " " in view.code(node.value).strip()


def is_program(view: SourceView) -> bool:
    """Return whether a module is run as a program: the user of a migrated program wants it to run on a CPU."""
    return _ENTRY.search(view.source) is not None  # and not an example in a docstring


def writes_kernels(view: SourceView) -> bool:
    """Return whether a module uses a language for CUDA's kernels, or operators of cuDNN's by their names."""
    if _CUDNNS.search(view.source):
        return True
    for statement in view.of(cst.Import, cst.ImportFrom):
        if isinstance(statement, cst.ImportFrom) and _imports_kernels(statement):
            return True
        module = getattr(statement, "module", None)
        parts = (dotted(module) or "").split(".") if module is not None else []
        if library_of(statement) in _LANGUAGES or any(each in _LANGUAGES for each in parts):
            return True  # the second is a package of the program's, such as ``parts.numba.loss``
    return False


def _imports_kernels(statement: cst.ImportFrom) -> bool:
    """Return whether kernels come from a package's part for CUDA: ``from layers.nbit.cuda import LinearCuda``."""
    parts = (dotted(statement.module) or "").split(".") if statement.module is not None else []
    names = [] if isinstance(statement.names, cst.ImportStar) else [dotted(each.name) or "" for each in statement.names]
    return "cuda" in parts[1:] and parts[0] != "torch" and any(map(_OF_KERNEL.search, names))


def of_guards_named(view: SourceView, named: list[Regions]) -> Objection | None:
    """Return an objection if the program stops somewhere when a stored answer is no: ``if not args.cuda: raise …``."""
    for each in named:
        if each.is_entry or (each.is_test and each.stops):
            line = view.position(each.asked)[0]
            return Objection(
                "cuda-guard",
                f"the program stops at line {line} without CUDA; decide whether other devices may continue",
            )
    return None


def lines_of_guard(view: SourceView, guard: cst.CSTNode) -> range:
    """Return the lines of a guard, without the comments above it."""
    return range(view.position(guard)[0], view.end_line(guard) + 1)


def advice_on(view: SourceView, guard: cst.CSTNode) -> str:
    """Return a description of the exact edit that removes a guard."""
    lines = lines_of_guard(view, guard)
    where = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"
    return f"stops the program without CUDA; delete {where} if other devices may continue (--drop-cuda-guards does)"


def without_lines(view: SourceView, source: str, guards: list[cst.CSTNode]) -> tuple[str, list[int]]:
    """Return the source without the given guards, and the original line number of each remaining line.

    If a block consists of guards only, ``pass`` replaces them. Comments above a guard stay.
    """
    replaced: dict[int, str] = {}
    for guard in guards:
        lines = lines_of_guard(view, guard)
        block = view.parent(guard)
        is_only = isinstance(block, cst.IndentedBlock) and all(each in guards for each in block.body)
        is_last = is_only and isinstance(block, cst.IndentedBlock) and block.body[-1] is guard
        replaced.update(dict.fromkeys(lines, ""))
        if is_last:
            old = lines_of(source)[lines[0] - 1]
            end = old[len(old.rstrip("\r\n")) :]
            replaced[lines[0]] = f"{old[: len(old) - len(old.lstrip())]}pass{end}"
    kept, numbers = [], []
    for number, line in enumerate(lines_of(source), 1):
        text = replaced.get(number, line)
        if text:
            kept.append(text)
            numbers.append(number)
    return "".join(kept), numbers
