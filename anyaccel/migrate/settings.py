"""``[tool.anyaccel]`` of a project's pyproject.toml: what ``migrate`` and ``check`` leave out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .site import MigrateError

if TYPE_CHECKING:
    from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["excluded_patterns"]


def excluded_patterns(start: Path) -> list[str]:
    """Return the patterns of absolute paths that the project around a folder excludes.

    Args:
        start: where to look for ``pyproject.toml``, and in the folders above.

    Raises:
        MigrateError: when the file cannot be read, or has something else there.
    """
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return [str(folder / pattern) for pattern in _exclude(file)]
    return []


def _exclude(file: Path) -> list[str]:
    try:
        table: Any = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("anyaccel", {})
    except (OSError, ValueError) as error:
        msg = f"reading {file} failed: got {error}; expected TOML. Fix: correct it."
        raise MigrateError(msg) from error
    patterns = table.get("exclude", []) if isinstance(table, dict) else None
    unknown = set(table) - {"exclude"} if isinstance(table, dict) else {"no table"}
    if unknown or not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
        msg = (
            f"reading [tool.anyaccel] of {file} failed: got {', '.join(sorted(unknown)) or patterns}; expected "
            f'exclude = ["pattern", …] and nothing else. Fix: correct it.'
        )
        raise MigrateError(msg)
    return patterns
