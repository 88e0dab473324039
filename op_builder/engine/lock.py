"""One builder at a time per op and fingerprint, by an OS lock that dies with its holder."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import time
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from .progress import Reporter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["build_lock", "try_lock"]

_logger = logging.getLogger(__name__)
_SAY_AFTER_SECONDS = 1.0


@contextlib.contextmanager
def build_lock(file: Path, op: str) -> Iterator[None]:
    """Hold the lock on a file; after a second of waiting, say for whom.

    Args:
        file: the lock file. It stays, and holds the name of the last holder; only the OS lock on it counts.
        op: the op's name, for the message.
    """
    holder = file.with_suffix(".holder")
    lock = FileLock(file, mode=0o600)
    _acquire(lock, holder, op)
    try:
        holder.write_text(f"process {os.getpid()} on {platform.node()}")
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def try_lock(file: Path) -> Iterator[bool]:
    """Hold the lock on a file, where nobody else does; yield whether it is held."""
    lock = FileLock(file, mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _acquire(lock: FileLock, holder: Path, op: str) -> None:
    reporter: Reporter | None = None
    began = time.monotonic()
    while True:
        try:
            lock.acquire(timeout=_SAY_AFTER_SECONDS, poll_interval=0.02)
        except Timeout:
            whom = _read(holder)
            if reporter is None:
                _logger.warning("waiting for %s, which is building the op '%s'", whom, op)
                reporter = Reporter(op, "waiting for", f"{whom} is building it")
            reporter.tick(time.monotonic() - began)
        else:
            return


def _read(holder: Path) -> str:
    try:
        return holder.read_text()
    except OSError:
        return "another process"
