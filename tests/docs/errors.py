"""Collects the text of every error that the code raises, from the source, for docs/errors.md."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
VALUE = "{…}"
_FOLDERS = ("accelerator", "anyaccel", "kernels", "op_builder")
_RAISED_IN_CPP = re.compile(r"\b(throw \w[\w:]*|(?:\w+\.)?refuse\w*|throw_\w+|fail|TORCH_CHECK\w*)\(")
_RAISES = re.compile(r"\braise\b|super\(\)\.__init__")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_WITHOUT_WORDS = ("typer.Exit", "TORCH_CHECK_NOT_IMPLEMENTED")


class Error(NamedTuple):
    """An error in the code.

    Attributes:
        file: its path relative to the repository.
        kind: the exception's class, or the function that creates it.
        text: with ``{…}`` for values, and ``|`` between the parts of a text that a function assembles.
    """

    file: str
    kind: str
    text: str


def of_python() -> Iterator[Error]:
    """Yield every ``raise`` with a text, and the texts in exception classes."""
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            file, code = path.relative_to(ROOT).as_posix(), path.read_text()
            for holder in ast.walk(ast.parse(code)) if _RAISES.search(code) else ():
                if isinstance(holder, ast.ClassDef):
                    yield from (Error(file, holder.name, text) for text in _own_words(holder))
                if isinstance(holder, ast.FunctionDef):
                    for node in _within(holder):
                        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                            yield Error(file, ast.unparse(node.exc.func), _arguments(node.exc, holder))


def of_cpp() -> Iterator[Error]:
    """Yield every ``throw`` with a text, every check, and every call that rejects an argument."""
    for path in sorted((ROOT / "csrc").rglob("*")):
        if path.suffix in (".h", ".cpp"):
            code = re.sub(r"^\s*(//|#).*", "", path.read_text(), flags=re.MULTILINE)
            for found in _RAISED_IN_CPP.finditer(code):
                kind = found[1].removeprefix("throw ").rpartition(".")[2]
                said = _said(code, found.end())
                text = said.partition(" | ")[2].replace(" | ", "") if kind.startswith("TORCH_CHECK") else said
                yield Error(path.relative_to(ROOT).as_posix(), kind, text)


@cache
def errors() -> list[Error]:
    """Return every error with a text, by file."""
    found = {error for error in (*of_python(), *of_cpp()) if error.kind not in _WITHOUT_WORDS}
    return sorted(error for error in found if len(error.text.replace(VALUE, "").replace("|", "").split()) > 2)


def fixes() -> Iterator[tuple[str, str]]:
    """Yield the texts that functions put into a message as its ``fix``, with their files."""
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "fix":
                    yield path.relative_to(ROOT).as_posix(), _written(node.value)


def page() -> str:
    """Return the list of every error, by file."""
    lines = [""]
    for file, of_file in groupby(errors(), key=lambda error: error.file):
        lines += [f"## `{file}`", "", *(f"- `{error.kind}`: {_as_markdown(error.text)}" for error in of_file), ""]
    return "\n".join(lines)


def _as_markdown(text: str) -> str:
    return re.sub(r"([*_|<\[\]`])", r"\\\1", " ".join(text.split()))


def _own_words(exception: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(exception):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__":
            yield _arguments(node, exception)


def _within(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of functions or classes inside it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield child
            yield from _within(child)


def _arguments(call: ast.Call, holder: ast.AST) -> str:
    """Return the texts in the arguments; a name stands for its last assignment before the call."""
    parts = []
    for argument in call.args:
        node: ast.AST = argument
        for assigned in _within(holder) if isinstance(argument, ast.Name) else ():
            if isinstance(assigned, ast.Assign) and assigned.lineno < call.lineno:
                node = assigned.value if ast.unparse(assigned.targets[0]) == ast.unparse(argument) else node
        parts.append(_written(node))
    return " | ".join(parts)


def _written(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_written(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _written(node.left) + _written(node.right)
    return VALUE


def _said(code: str, place: int) -> str:
    """Return the literals in a call's arguments, starting after its bracket, with ``{…}`` for everything in between."""
    said, depth = "", 0
    while depth >= 0:
        literal = _LITERAL.match(code, place)
        if literal and depth == 0:
            said += literal[1].replace("\\n", " ").replace('\\"', '"')
            place = literal.end()
            continue
        letter = code[place]
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            said += " | "
        elif depth == 0 and not letter.isspace() and letter != "+" and not said.endswith(VALUE):
            said += VALUE
        place += 1
    return said
