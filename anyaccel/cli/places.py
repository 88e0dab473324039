"""Checks that there is a place for a result, before the work that makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..accelerator.errors import AnyaccelError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PlaceError", "require_folder"]


class PlaceError(AnyaccelError, OSError):
    """Raised when a folder for results cannot be created."""


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
