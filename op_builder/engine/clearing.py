"""Clears the cache: removes builds, and leftovers of failed or killed builders, except what is in use."""

from __future__ import annotations

import contextlib
import re
import stat
import time
from typing import TYPE_CHECKING

from .cache import ENTRY, LOCK, SOURCES, STAGING
from .directory import try_to_remove
from .entry import METADATA, UNREADABLE
from .lock import try_lock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .cache import Cache

__all__ = ["clear"]

_BESIDE = (LOCK, ".holder", ".log")
_TRIAL = re.compile(rf"{STAGING}trial-\w{{8}}")
_STAGED = re.compile(rf"{STAGING}({ENTRY})-\w{{8}}")
_LONGEST_SECONDS = 3600.0
_KERNEL = re.compile(r"kernel-[0-9a-f]{16}\.\w+")
_UNPUBLISHED = re.compile(r"\.[0-9a-f]{16}")
"""A temporary file of a killed writer, not yet renamed."""


def clear(cache: Cache, oldest: float) -> int:
    """Remove entries and leftovers of failed or killed builders; return the number of removed entries.

    Entries that are being built, under their lock, stay. A process that is about to load an op builds it again, and one that has
    loaded it keeps it.

    Args:
        cache: the cache to clear.
        oldest: remove only entries last changed before this time, in seconds since the epoch.

    Raises:
        OSError: when an entry cannot be removed.
    """
    directory = cache.directory
    longest_ago = min(oldest, time.time() - _LONGEST_SECONDS)  # compiler tests and reading a source hold no lock
    stems: dict[str, list[str]] = {}
    for name in directory.names():
        if _TRIAL.fullmatch(name) or _UNPUBLISHED.fullmatch(name):
            if _is_older(cache, name, longest_ago):
                directory.remove(name)
        elif stem := _stem(name):
            stems.setdefault(stem, []).append(name)
    removed = 0
    for stem, own in stems.items():
        if all(_is_older(cache, name, oldest) for name in own if not name.endswith(LOCK)):
            removed += _clear_one(cache, stem, own)
    for name in directory.names_in(SOURCES) if directory.has_folder(SOURCES) else ():
        if _KERNEL.fullmatch(name):
            with contextlib.suppress(FileNotFoundError):
                if (cache.root / SOURCES / name).lstat().st_mtime <= longest_ago:
                    directory.remove(name, folder=SOURCES)
    return removed


def _is_older(cache: Cache, name: str, oldest: float) -> bool:
    try:
        status = cache.directory.status(name)
        if re.fullmatch(ENTRY, name) and stat.S_ISDIR(status.st_mode):
            built = cache.status(cache.read(name))
            return built is None or built.st_mtime <= oldest
    except UNREADABLE:
        return True
    return status.st_mtime <= oldest


def _clear_one(cache: Cache, stem: str, names: Iterable[str]) -> int:
    """Remove the files of one entry, metadata first, so that no reader finds half of it."""
    directory = cache.directory
    with try_lock(cache.own_file(f"{stem}{LOCK}")) as is_held:
        if not is_held:
            return 0
        was_entry = directory.has_folder(stem)
        if was_entry:
            try_to_remove(directory, METADATA, stem)
        for name in [*names, stem]:
            if not name.endswith(LOCK):
                directory.remove(name)
        directory.remove(f"{stem}{LOCK}")  # while it is held: waiters see that it is no longer theirs
        return int(was_entry)


def _stem(name: str) -> str:
    """Return the entry that a file or folder belongs to; empty if anyaccel did not make it: it may be the user's."""
    staged = _STAGED.fullmatch(name)
    if staged is not None:
        return staged[1]
    stem = next((name.removesuffix(suffix) for suffix in _BESIDE if name.endswith(suffix)), name)
    return stem if re.fullmatch(ENTRY, stem) else ""
