"""Updates the stamps of inputs whose content is unchanged, such as after an upgrade: the next load then reads no files."""

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
    """Write an entry's inputs with new stamps; does nothing if it is being built, has changed, or cannot be written.

    Args:
        directory: the cache directory.
        lock: the entry's lock file.
        entry: the entry as it was read.
        inputs: its inputs with new stamps.
    """
    with contextlib.suppress(*UNREADABLE), try_lock(lock) as is_held:
        known = parse_entry(directory.read(METADATA, folder=entry.name), entry.binary.parent)
        if is_held and known == entry:
            directory.write(METADATA, text_of(entry._replace(inputs=inputs)), folder=entry.name)
