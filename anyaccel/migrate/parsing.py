"""From a source's text to its tree, or to an error that says which line is wrong."""

from __future__ import annotations

import ast
import warnings

import libcst as cst

from .site import SourceError

__all__ = ["parse"]

_TOO_DEEP = ("", 0)


def parse(source: str) -> cst.Module:
    """Return a module's concrete syntax tree.

    Raises:
        SourceError: when it is not Python, with the line.
    """
    said = _said_by_python(source)  # first: LibCST's parser has no limit, and ends the process where its stack is full
    if said == _TOO_DEEP:
        msg = "reading Python failed: got code that is nested too deeply for Python itself. Fix: split the expression."
        raise SourceError(msg)
    try:
        return cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        problem, line = said or (error.message, error.raw_line)
        msg = (
            f"reading Python failed: got {problem} at line {line}; expected Python 3. "
            f"Fix: correct that line, or leave the file out with exclude in pyproject.toml."
        )
        raise SourceError(msg, line) from error
    except (RecursionError, ValueError) as error:
        msg = (
            f"reading Python failed: got {error}; expected Python 3. "
            f"Fix: leave the file out with exclude in pyproject.toml."
        )
        raise SourceError(msg) from error


def _said_by_python(source: str) -> tuple[str, int] | None:
    """Return Python's own message and line, which are clearer than LibCST's list of expected tokens; None if it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the file, such as invalid escapes
            ast.parse(source)
    except SyntaxError as error:
        if error.msg.startswith("too many nested parentheses"):
            return _TOO_DEEP
        return (error.msg, error.lineno) if error.lineno else None
    except (RecursionError, MemoryError):
        return _TOO_DEEP
    except ValueError:
        return None
    return None
