"""Folders for short-lived files, and the error when no disk has room for them."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .errors import TemporaryDirectoryError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TEMPORARY_FIX", "in_scratch_folder", "lack_of_room", "private_folder"]

TEMPORARY_FIX = "free some space there, or set TMPDIR to a writable directory with free space"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the last by ulimit -f
_CUT = re.compile(
    r"File size limit exceeded(\]?(, core dumped)?| signal terminated program \S+)$"
)  # GCC's words for a program that SIGXFSZ ended
_UNUSABLE = (*_FULL, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR)

T = TypeVar("T")


def lack_of_room(said: str) -> OSError | None:
    """Return the error in a program's output that says that its disk is full; None if there is none.

    A source may contain these words in an ``#error``, which says nothing about the disk.
    """
    lines = [line for line in said.splitlines() if "#error" not in line]
    ends = [line.rstrip(" \t\r.'\"\u2018\u2019") for line in lines]  # `as` quotes the reason
    for number in _FULL:
        text = os.strerror(number)
        if any(line.endswith(text) for line in ends):
            return OSError(number, text)
    is_cut = any(map(_CUT.search, ends))
    return OSError(errno.EFBIG, os.strerror(errno.EFBIG)) if is_cut else None


def private_folder(prefix: str, parent: Path | None = None) -> Path:
    """Create a folder for this user only, whatever the umask, and return it.

    Args:
        prefix: the beginning of its name.
        parent: where to create it; the system's directory for temporary files by default.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    folder.chmod(0o700)
    return folder


def in_scratch_folder(preferred: Path | None, doing: str, work: Callable[[Path], T]) -> T:
    """Call a function with an empty folder, which is removed afterwards, and return the function's result.

    Args:
        preferred: the directory to create it in; if it is full or None, the system's directory for temporary files.
        doing: the purpose of the folder, for the message.
        work: takes the folder; an OSError that says that the disk is full restarts it in another directory.

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
            os.chmod(name, 0o700)  # whatever the umask
            try:
                return work(Path(name))
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                reasons.append(f"{Path(name).parent}: {error.strerror}")
    msg = (
        f"{doing} failed: no directory for temporary files can be used: {', and '.join(reasons)}. Fix: {TEMPORARY_FIX}."
    )
    raise TemporaryDirectoryError(msg)
