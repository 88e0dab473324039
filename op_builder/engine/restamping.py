"""New stamps for inputs whose content is the same, as after an upgrade that touched a directory: the next load reads nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from .entry import METADATA, UNREADABLE, parse_entry, text_of
from .lock import try_lock

if TYPE_CHECKING:
    from pathlib import Path

    from .directory import Directory
    from .entry import Entry
    from .inputs import Inputs

__all__ = ["keep_stamps"]


def keep_stamps(directory: Directory, lock: Path, entry: Entry, inputs: Inputs) -> None:
    """Write an entry's inputs down with new stamps; nothing where it is being built, has changed, or cannot be written.

    Args:
        directory: the cache's.
        lock: the entry's lock file.
        entry: what was read.
        inputs: its inputs with new stamps.
    """
    with contextlib.suppress(*UNREADABLE), try_lock(lock) as is_held:
        known = parse_entry(directory.read(METADATA, folder=entry.name), entry.binary.parent)
        if is_held and known == entry:
            directory.write(METADATA, text_of(entry._replace(inputs=inputs)), folder=entry.name)
