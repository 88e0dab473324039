"""Where short-lived files go, and what to say where there is no room for them."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .errors import TemporaryDirectoryError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TEMPORARY_FIX", "in_scratch_folder", "lack_of_room"]

TEMPORARY_FIX = "free some space there, or set TMPDIR to a directory that can be written and has room"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNUSABLE = (*_FULL, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR)

T = TypeVar("T")


def lack_of_room(said: str) -> OSError | None:
    """Return the error that a program's messages tell of when its disk is full; None when they tell of none.

    A source may have the words in an ``#error``, which says nothing about the disk.
    """
    for number in _FULL:
        text = os.strerror(number)
        if any(line.rstrip().endswith(text) and "#error" not in line for line in said.splitlines()):
            return OSError(number, text)
    return None


def in_scratch_folder(preferred: Path | None, doing: str, work: Callable[[Path], T]) -> T:
    """Call a function with an empty folder, which is removed afterwards, and return what it returns.

    Args:
        preferred: the directory to make it in; the system's directory for temporary files where that has no room, or is None.
        doing: what the folder is for, for the message.
        work: takes the folder; an OSError that says that the disk is full makes it start again elsewhere.

    Raises:
        TemporaryDirectoryError: when no directory can be used.
    """
    reasons = []
    for parent in (preferred, None) if preferred is not None else (None,):
        try:
            folder = tempfile.TemporaryDirectory(prefix="staging-trial-", dir=parent, ignore_cleanup_errors=True)
        except OSError as error:
            if error.errno not in _UNUSABLE:
                raise
            reasons.append(f"{parent}: {error.strerror}" if parent or error.filename else str(error.strerror))
            continue
        with folder as name:
            try:
                return work(Path(name))
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                reasons.append(f"{Path(name).parent}: {error.strerror}")
    msg = f"{doing} failed: got {', and '.join(reasons)}; expected room for temporary files. Fix: {TEMPORARY_FIX}."
    raise TemporaryDirectoryError(msg)
