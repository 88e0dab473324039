"""One builder at a time per op and fingerprint, by an OS lock that dies with its holder."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import platform
import time
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from .progress import Reporter

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["NO_LOCKS", "build_lock", "is_locked"]

_logger = logging.getLogger(__name__)
_SAY_AFTER_SECONDS = 1.0
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}
"""What a file system that has no locks answers."""


@contextlib.contextmanager
def build_lock(file: Path, op: str, stop: threading.Event | None = None) -> Iterator[None]:
    """Hold the lock on a file; after a second of waiting, say for whom.

    Args:
        file: the lock file. It stays, and holds the name of the last holder; only the OS lock on it counts.
        op: the op's name, for the message.
        stop: once it is set, waiting is given up.

    Raises:
        OSError: with an errno of ``NO_LOCKS`` and the file's name, when the file system has no locks.
        BuildStoppedError: when ``stop`` is set.
    """
    holder = file.with_suffix(".holder")
    lock = _lock(file)
    _acquire(lock, file, op, stop)
    try:
        holder.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
        yield
    finally:
        lock.release()


def is_locked(file: Path) -> bool:
    """Return whether somebody holds the lock on a file now; nobody can where the file system has no locks."""
    if not file.exists():
        return False
    lock = _lock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise
    lock.release()
    return False


def _lock(file: Path) -> FileLock:
    # A lock by a file's existence, the library's replacement for a missing flock, outlives a holder that is killed.
    return FileLock(file, mode=0o600, fallback_to_soft=False)


def _acquire(lock: FileLock, file: Path, op: str, stop: threading.Event | None) -> None:
    began = time.monotonic()
    reporter: Reporter | None = None
    while True:
        try:
            lock.acquire(timeout=_SAY_AFTER_SECONDS, poll_interval=0.02)
        except Timeout:
            whom = _read(file.with_suffix(".holder"))
            if reporter is None:
                _logger.warning("waiting for %s, which is building the op '%s'", whom, op)
                reporter = Reporter(op, "waiting for", f"{whom} is building it", stop)
            reporter.tick(time.monotonic() - began)
        except OSError as error:
            if error.errno in NO_LOCKS:
                raise OSError(error.errno, f"its file system has no locks: {error.strerror}", str(file)) from error
            raise
        else:
            return


def _read(holder: Path) -> str:
    try:
        return holder.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "another process"
