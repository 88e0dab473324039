"""Checks that there is a place for a result, before the work that makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ..accelerator.errors import AnyaccelError

__all__ = ["PATH", "PATHS", "PlaceError", "require_folder"]


class PlaceError(AnyaccelError, OSError):
    """Raised when a folder for results cannot be created."""


def _named_path(text: str) -> Path:
    """Return the path that an argument names. An empty one, as of a shell's variable that is not set, would be this folder.

    Raises:
        BadParameter: when it is empty.
    """
    if not text:
        msg = "got an empty path. Fix: name a file or a folder; . is this folder."
        raise typer.BadParameter(msg)
    return Path(text)


PATH: dict[str, Any] = {"parser": _named_path, "metavar": "PATH"}
"""Typer's settings of an option that takes a path."""
PATHS: dict[str, Any] = {"parser": _named_path, "metavar": "PATHS"}
"""Typer's settings of an argument that takes paths."""


def require_folder(folder: Path, option: str) -> None:
    """Create a folder unless it is there.

    Args:
        folder: its path.
        option: the command line's option that names it.

    Raises:
        PlaceError: saying why it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"creating the folder {folder} failed: {error.strerror}. Fix: pass another one to {option}."
        raise PlaceError(msg) from error
