"""An OS lock that allows one builder at a time per op and fingerprint; it is released when its holder dies."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import time
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from .directory import NO_LOCKS, read_regular
from .progress import Reporter

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["build_lock", "try_lock"]

_logger = logging.getLogger(__name__)
_SAY_AFTER_SECONDS = 1.0


@contextlib.contextmanager
def build_lock(file: Path, op: str, stop: threading.Event | None = None) -> Iterator[None]:
    """Hold the lock on a file; after waiting for a second, log who holds it.

    Args:
        file: the lock file. It stays, and contains the name of the last holder; only the OS lock on it counts.
        op: the op's name, for the message.
        stop: when it is set, waiting ends.

    Raises:
        OSError: with an errno of ``NO_LOCKS`` and the file's name, when the file system has no locks.
        BuildStoppedError: when ``stop`` is set.
    """
    holder = file.with_suffix(".holder")
    lock = _lock(file)
    _acquire(lock, file, op, stop)
    try:
        _name_holder(holder)
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def try_lock(file: Path) -> Iterator[bool]:
    """Hold the lock on a file if nobody else does, and yield whether it is held; always False on systems without locks."""
    lock = _lock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        yield True
        return
    try:
        yield True
    finally:
        lock.release()


def _lock(file: Path) -> FileLock:
    # A lock that consists of a file's existence, the library's fallback for a missing flock, outlives a killed holder.
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


def _name_holder(holder: Path) -> None:
    """Write down who holds the lock, for messages in other processes; does not follow a link in the file's place."""
    with contextlib.suppress(OSError):
        holder.unlink(missing_ok=True)
        descriptor = os.open(holder, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"process {os.getpid()} on {platform.node()}")


def _read(holder: Path) -> str:
    try:
        return read_regular(holder).decode(errors="replace")
    except OSError:
        return "another process"
