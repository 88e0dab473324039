"""Where a new import stands among the others: in isort's order, if they have it."""

from __future__ import annotations

import ast

__all__ = ["is_first", "sorted_place"]


def sorted_place(before: list[ast.stmt], after: ast.stmt | None, line: str) -> int | None:
    """Return the number of lines before an import in isort's order; None if its block is not sorted that way.

    A block has no empty lines. In it, ``import a`` comes before ``from a import b``, and both are sorted by module.
    """
    if after is None or after not in before or is_first(after):
        return None
    first = last = before.index(after)
    while first and _follows(before[first], before[first - 1]) and not is_first(before[first - 1]):
        first -= 1
    while last + 1 < len(before) and _follows(before[last + 1], before[last]):
        last += 1
    block = before[first : last + 1]
    keys = [_sort_key(node) for node in block]
    (new,) = (_sort_key(node) for node in ast.parse(line).body)
    if new is None or any(key is None for key in keys) or keys != sorted(key for key in keys if key is not None):
        return None
    following = next((node for node, key in zip(block, keys, strict=True) if key is not None and key > new), None)
    return following.lineno - 1 if following is not None else block[-1].end_lineno


def is_first(node: ast.stmt) -> bool:
    """Return whether a statement has to be at the beginning: the docstring, and imports from ``__future__``."""
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _follows(node: ast.stmt, other: ast.stmt) -> bool:
    are_imports = all(isinstance(each, ast.Import | ast.ImportFrom) for each in (node, other))
    return are_imports and node.lineno == (other.end_lineno or other.lineno) + 1


def _sort_key(node: ast.stmt) -> tuple[bool, str] | None:
    if isinstance(node, ast.ImportFrom):
        return None if node.level else (True, (node.module or "").lower())
    return (False, node.names[0].name.lower()) if isinstance(node, ast.Import) else None
