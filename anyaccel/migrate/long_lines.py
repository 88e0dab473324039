"""Wraps the lines that a rewrite made too long, with ruff, as the project's settings say."""

from __future__ import annotations

import ast
import configparser
import difflib
import io
import shutil
import subprocess
import sys
import sysconfig
import tokenize
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .lines import lines_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Style", "ruff", "style_of", "too_long", "wrapped"]

_USUAL = 100  # columns, for a project that sets no length
_WITHIN = 0.99  # the share of a file's lines that are at most as long as its own length
_INI = {"setup.cfg": ("flake8", "pycodestyle"), "tox.ini": ("flake8", "pycodestyle"), ".flake8": ("flake8",)}
_RUFF = ("ruff.toml", ".ruff.toml")
_OLDEST = "py37"  # ruff's oldest: no syntax that the project's Python may lack


@dataclass(frozen=True)
class Style:
    """How a project formats its code.

    Attributes:
        length: the longest line, in columns; None if no setting says it.
        has_ruff: whether the setting is ruff's, so that ruff finds all others itself.
    """

    length: int | None = None
    has_ruff: bool = False


@lru_cache(maxsize=1024)
def style_of(folder: Path) -> Style:
    """Return the style that the settings in a folder, or else in one above it, ask for.

    They are those of ruff, black, flake8 and pycodestyle.
    """
    for name in _RUFF:
        if (file := folder / name).is_file():
            return Style(_number(_toml(file), "line-length") or 88, has_ruff=True)
    tools = _table(_toml(folder / "pyproject.toml"), "tool")
    if "ruff" in tools:
        return Style(_number(_table(tools, "ruff"), "line-length") or 88, has_ruff=True)
    if "black" in tools:
        return Style(_number(_table(tools, "black"), "line-length") or 88)
    for name, sections in _INI.items():
        length = _in_ini(folder / name, sections)
        if length is not None:
            return Style(length)
    is_top = folder.parent == folder or (folder / ".git").exists()
    return Style() if is_top else style_of(folder.parent)


def too_long(path: Path, old: str, new: str) -> list[int]:
    """Return the numbers of the changed lines, from 1, that are longer than the project, or else the file, allows.

    A line that replaces one that was too long already may be as long as that.
    """
    olds, news = _lengths(old), _lengths(new)
    limit = style_of(path.resolve().parent).length or _own_length(olds)
    found: list[int] = []
    matcher = difflib.SequenceMatcher(None, lines_of(old), lines_of(new), autojunk=False)
    for kind, begin, end, first, last in matcher.get_opcodes():
        allowed = max([limit, *olds[begin:end]])
        found += [at + 1 for at in range(first, last) if kind != "equal" and news[at] > allowed]
    return found


def wrapped(path: Path, old: str, new: str) -> str:
    """Return new code in which ruff has wrapped each changed line that is too long; unchanged without ruff.

    Only the statement around such a line is formatted, and only if its code and its comments stay the same: ruff 0.17
    deletes a comment beside the range at times, and formats what is next to it.

    Args:
        path: the file.
        old: its code before.
        new: its code after a rewrite.
    """
    numbers, tool = too_long(path, old, new), ruff()
    if not numbers or tool is None:
        return new
    style = style_of(path.resolve().parent)
    length = style.length or _own_length(_lengths(old))
    options = ["--isolated", "--line-length", str(length), "--target-version", _OLDEST]
    options += ["--config", 'format.quote-style="preserve"']
    text, indented = new, _as_indented(old)
    for number in reversed(numbers):  # from the last line, so that the others keep their numbers
        place = f"{number}:1-{number}:{_lengths(text)[number - 1]}"
        command = [tool, "format", "--quiet", "--no-cache", f"--range={place}"]
        command += indented if style.has_ruff else [*indented, *options]
        command += ["--stdin-filename", str(path.resolve()), "-"]
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)  # noqa: S603
        if done.returncode != 0:
            return text  # Python that ruff cannot read
        statement = _with_statement(text, done.stdout.decode(), number)
        text = statement if _is_same(text, statement) else text
    return text


def _with_statement(code: str, formatted: str, number: int) -> str:
    """Return code in which only the statement with a line is the formatted one; the code itself if they differ in more."""
    olds, news = _statements(code), _statements(formatted)
    around = [place for place, (first, last) in enumerate(olds) if first <= number <= last]
    if len(olds) != len(news) or not around:
        return code
    first, last = olds[around[-1]]
    begin, end = news[around[-1]]
    lines = lines_of(code)
    return "".join([*lines[: first - 1], *lines_of(formatted)[begin - 1 : end], *lines[last:]])


def _statements(code: str) -> list[tuple[int, int]]:
    """Return the first and the last line of each statement, outer ones first; of one with a block, without the block."""
    found = []
    for node in ast.walk(_parsed(code) or ast.Module([], [])):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = _first_line(body[0]) - 1 if body and body[0].lineno > node.lineno else node.end_lineno
            found.append((_first_line(node), end or node.lineno))
    return found


def _first_line(node: ast.stmt) -> int:
    """Return the first line of a statement, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _indentation(code: str) -> str:
    """Return one level of indentation: the most frequent one of a file."""
    levels, found = [""], Counter[str]()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.INDENT:
            found[token.string.removeprefix(levels[-1])] += 1
            levels.append(token.string)
        elif token.type == tokenize.DEDENT:
            levels.pop()
    return max(found, key=found.__getitem__, default=" " * 4)


def _as_indented(code: str) -> list[str]:
    level = _indentation(code)
    style = 'format.indent-style="tab"' if "\t" in level else f"indent-width={len(level)}"
    return ["--config", style]


def _lengths(code: str) -> list[int]:
    return [len(line.rstrip("\r\n")) for line in lines_of(code)]


def _own_length(lengths: list[int]) -> int:
    """Return the length that nearly all lines of a file keep to, or the usual one if that is more."""
    return max(_USUAL, sorted(lengths)[int(_WITHIN * (len(lengths) - 1))] if lengths else 0)


def _is_same(one: str, other: str) -> bool:
    trees = [_parsed(one), _parsed(other)]
    return None not in trees and ast.dump(trees[0]) == ast.dump(trees[1]) and _comments(one) == _comments(other)  # type: ignore[arg-type]


def _parsed(code: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError):
            return None


def _comments(code: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [each.string.rstrip() for each in tokens if each.type == tokenize.COMMENT]


@lru_cache(maxsize=1)
def ruff() -> str | None:
    """Return the path of ruff: of this Python's environment, or else on the PATH."""
    beside = Path(sysconfig.get_path("scripts"), "ruff")
    return str(beside) if beside.is_file() else shutil.which("ruff")


def _toml(file: Path) -> dict[str, object]:
    try:
        values: dict[str, object] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}
    return values


def _table(values: dict[str, object], name: str) -> dict[str, object]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _number(values: dict[str, object], name: str) -> int | None:
    found = values.get(name)
    return found if isinstance(found, int) and found > 0 else None


def _in_ini(file: Path, sections: tuple[str, ...]) -> int | None:
    values = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        values.read(file, encoding="utf-8")
        found = (values.get(each, "max-line-length", fallback="") for each in sections)
        text = next((each for each in found if each), "")
        return int(text.split("#")[0])
    except (OSError, ValueError, configparser.Error):
        return None
