"""From a source's text to its tree, or to an error that says which line is wrong."""

from __future__ import annotations

import ast
import warnings

import libcst as cst

from .site import SourceError

__all__ = ["parse"]


def parse(source: str) -> cst.Module:
    """Return a module's concrete syntax tree.

    Raises:
        SourceError: when it is not Python, with the line.
    """
    try:
        return cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        said, line = _said_by_python(source) or (error.message, error.raw_line)
        msg = (
            f"reading Python failed: got {said} at line {line}; expected Python 3. "
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
    """Return Python's own message and line, which are clearer than LibCST's list of expected tokens."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the file, such as invalid escapes
            ast.parse(source)
    except SyntaxError as error:
        return (error.msg, error.lineno) if error.lineno else None
    except (ValueError, RecursionError, MemoryError):
        return None
    return None
