"""Child nodes, dotted names and string values of nodes; fast, because every rule calls these for every node."""

from __future__ import annotations

import dataclasses
from functools import cache, lru_cache
from typing import Any

import libcst as cst

__all__ = ["dotted", "is_whitespace", "library_of", "pairs", "parts", "target_of", "text_of", "unpacked"]

_WHITESPACE = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine, cst.Newline, cst.Comment)


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def parts(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Return the child nodes of a node in order; ``node.children`` returns the same but is ten times slower."""
    found: list[cst.CSTNode] = []
    for name in _fields(type(node)):
        value = getattr(node, name)
        for each in value if isinstance(value, list | tuple) else (value,):
            kind: Any = type(each)
            if _is_node(kind):
                found.append(each)
    return found


@cache
def _is_node(kind: type[object]) -> bool:
    """Return whether a class is a node class.

    The result is cached by class, because ``isinstance`` is slow for LibCST's abstract classes: calling it for each
    node would cost more than the walk.
    """
    return issubclass(kind, cst.CSTNode)


@cache
def is_whitespace(kind: type[object]) -> bool:
    """Return whether a class is a whitespace class; whitespace is never a site."""
    return issubclass(kind, _WHITESPACE)


def dotted(node: cst.CSTNode) -> str | None:
    """Return ``a.b.c`` for a chain of names, or None for any other expression."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    return ".".join([node.value, *reversed(parts)])


def library_of(statement: cst.Import | cst.ImportFrom) -> str:
    """Return the top-level package that an import names first; empty for a relative import."""
    named = statement.module if isinstance(statement, cst.ImportFrom) else statement.names[0].name
    return (dotted(named) or "").partition(".")[0] if named is not None else ""


def text_of(node: cst.CSTNode | None) -> str | None:
    """Return the value of a string literal without a placeholder, or None for any other expression."""
    if isinstance(node, cst.SimpleString | cst.ConcatenatedString):
        value = _evaluated(node.value) if isinstance(node, cst.SimpleString) else node.evaluated_value
        return value if isinstance(value, str) else None
    return None


@lru_cache(maxsize=4096)
def _evaluated(literal: str) -> str | bytes:
    return cst.SimpleString(literal).evaluated_value


def pairs(names: cst.CSTNode | None, given: cst.CSTNode | None) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Return the names and the values of ``a, b = 1, 2``, each with its other; empty if the sides do not have as many."""
    if (
        not isinstance(names, cst.Tuple)
        or not isinstance(given, cst.Tuple)
        or len(names.elements) != len(given.elements)
    ):
        return []
    found = list(zip(names.elements, given.elements, strict=True))
    plain = [
        (one.value, other.value)
        for one, other in found
        if isinstance(one, cst.Element) and isinstance(other, cst.Element)
    ]
    return plain if len(plain) == len(found) else []  # not ``a, *b = …``


def target_of(element: cst.Element, *around: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the name that gets an element: ``b`` for ``2`` in ``a, b = 1, 2``; None if there is none.

    Args:
        element: the value.
        around: the tuple and the assignment that it is in.
    """
    given, owner = (*around, None, None)[:2]
    if not isinstance(owner, cst.Assign) or len(owner.targets) != 1:
        return None
    return next((name for name, value in pairs(owner.targets[0].target, given) if value is element.value), None)


def unpacked(element: cst.Element, *around: cst.CSTNode) -> list[cst.BaseExpression]:
    """Return the value of one name of ``a, b = 1, 2``; empty if the other side has no element for each name.

    Args:
        element: the name.
        around: the tuple, the target and the assignment that it is in.
    """
    names, _, owner = (*around, None, None, None)[:3]
    given = owner.value if isinstance(owner, cst.Assign) else None
    return [value for name, value in pairs(names, given) if name is element.value]
