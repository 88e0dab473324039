"""The files outside the fingerprint that decided a build, and the directories in which the tools looked first.

A file counts by its content. Its stamp (inode, size, times) only tells whether to read it again: an inode's change time cannot
be set back, and a build is discarded when a file changed during the compilation.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from .directory import digest_of_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "ChangedMeanwhile",
    "Inputs",
    "Lookups",
    "changed_since",
    "digest_of",
    "has_changed_since",
    "is_found",
    "stamp_of",
    "times_ahead",
]


_SETTLED_NS = 2_000_000_000
"""Two changes within one tick of the disk's clock, which is at most this long, can leave the same times."""


def stamp_of(path: str) -> str:
    """Return a text that changes when a file or directory does; empty if it does not exist."""
    return "".join(_stamps_of([path]))


def _stamps_of(paths: list[str]) -> list[str]:
    """Return the stamps of files and directories; an empty list if one of them does not exist."""
    try:
        return [f"{one.st_ino} {one.st_size} {one.st_mtime_ns} {one.st_ctime_ns}" for one in map(os.stat, paths)]
    except OSError:
        return []


def digest_of(path: str) -> str:
    """Return the digest of a file's content; empty if it is not a regular file or cannot be read."""
    try:
        return digest_of_regular(path, follow_link=True)
    except OSError:
        return ""


class ChangedMeanwhile(Exception):  # noqa: N818  # not an error: the build starts again
    """A file changed after a build read it."""


def changed_since(paths: Iterable[str], began_ns: int, known: dict[str, int]) -> str:
    """Return a file that was changed or replaced after a time, counting links and folders on its path; empty if there is none.

    A reverted edit, or an older file or folder moved into place, also changes an inode's time.

    Args:
        paths: the files.
        began_ns: the time, by the disk of the build.
        known: times that places had before that, though they are later: a clock has stepped back, or the files are on a
            disk whose clock is ahead. Those that are found now are added, so that the next attempt knows them.
    """
    changed = ""
    for path, place, is_folder in _places_of(paths):
        later = _later_time(place, began_ns, is_folder=is_folder)
        if later is not None and (later < 0 or known.get(place) != later):
            known[place] = later
            changed = changed or path
    return changed


def times_ahead(paths: Iterable[str], now_ns: int) -> dict[str, int]:
    """Return the times in the future that files, and links and folders on their paths, have."""
    places = ((place, _later_time(place, now_ns + _SETTLED_NS, is_folder=False)) for _, place, _ in _places_of(paths))
    return {place: later for place, later in places if later is not None and later >= 0}


def _places_of(paths: Iterable[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield each file, and the links and folders on its path, with whether it is a folder; folders of several files once."""
    folders: set[str] = set()
    for path in paths:
        for place in _links_of(path):
            yield path, place, False
            while (place := os.path.dirname(place)) not in folders and place != "/":
                folders.add(place)
                yield path, place, True


def _later_time(place: str, began_ns: int, *, is_folder: bool) -> int | None:
    """Return when an inode was changed, if that is not before a time; -1 for a missing one.

    A folder must have been moved into place: adding or removing files changes both of its times.
    """
    try:
        status = os.lstat(place)
    except OSError:
        return -1
    is_later = status.st_ctime_ns >= began_ns and not (is_folder and status.st_mtime_ns >= began_ns)
    return status.st_ctime_ns if is_later else None


def has_changed_since(place: str, began_ns: int) -> bool:
    """Return whether a file, or a link itself, was changed after a time; a missing file counts as changed.

    Each change sets the inode's time. The file's own time can be set to any, also to one in the future.
    """
    return _later_time(place, began_ns, is_folder=False) is not None


def _links_of(path: str) -> list[str]:
    """Return the links on a path, and the path where it ends."""
    found = []
    place = os.path.abspath(path)
    for _ in range(40):  # the kernel's limit
        link = _first_link(place)
        if not link:
            break
        found.append(link)
        target = os.path.join(os.path.dirname(link), os.readlink(link))
        place = os.path.normpath(target + place[len(link) :])
    return [*found, place]


def _first_link(path: str) -> str:
    if os.path.realpath(path) == path:
        return ""
    end = 0
    while end < len(path):
        end = path.find("/", end + 1)
        end = len(path) if end < 0 else end
        if os.path.islink(path[:end]):
            return path[:end]
    return ""


class Lookups(NamedTuple):
    """The places in which a file would be found before the one that was used.

    Attributes:
        folders: the directories that are searched for every name, in order.
        watched: every directory in which such a file would appear; lines of stamp and path.
        missing: JSON that is parsed only when a directory has changed: for each name, how many of the first of these
            folders do not have it; and the paths of other files that do not exist.
        digest: the digest of ``missing``.
    """

    folders: tuple[str, ...] = ()
    watched: str = ""
    missing: str = "[{},[]]"
    digest: str = ""

    @classmethod
    def of(cls, folders: Sequence[str], names: Mapping[str, int], beside: Mapping[str, Iterable[str]]) -> Lookups:
        """Return the lookups with current stamps."""
        aside = sorted({f"{folder}/{name}" for folder, missing in beside.items() for name in missing})
        searched = {f"{folder}/{name}" for name, before in names.items() for folder in folders[:before]}
        watched = sorted({_existing(os.path.dirname(path)) for path in (*searched, *aside)})
        missing = json.dumps([dict(sorted(names.items())), aside], separators=(",", ":"))
        return cls(tuple(folders), _lines((stamp_of(place), place) for place in watched), missing, _digest(missing))

    def appeared(self) -> str:
        """Return a file that would now be found before the one that was used; empty if there is none.

        Raises:
            ValueError: when the lookups are damaged.
        """
        stamps, places = _columns(self.watched, 2)
        if _stamps_of(places) == stamps:
            return ""
        if _digest(self.missing) != self.digest:
            msg = "the names that were looked for are damaged"
            raise ValueError(msg)
        names, aside = json.loads(self.missing)
        earlier = (f"{folder}/{name}" for name, before in names.items() for folder in self.folders[:before])
        return next((path for path in (*earlier, *aside) if is_found(path)), "")


def is_found(path: str) -> bool:
    """Return whether a compiler takes what is at a path: a file, or a folder of precompiled headers that is not empty."""
    if not path.endswith(".gch") or not os.path.isdir(path):
        return os.path.isfile(path)
    try:
        return bool(os.listdir(path))
    except OSError:  # a folder that this user may not read
        return True


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _existing(place: str) -> str:
    """Return the nearest existing directory above a place; anything new on the path appears in it first."""
    while not os.path.isdir(place) and place not in ("", "/"):
        place = os.path.dirname(place)
    return place or "/"


class Inputs(NamedTuple):
    """The inputs of a build that are not in its fingerprint.

    Long lists are kept as text, which is much faster to read from metadata than a list, and parsed line by line.

    Attributes:
        files: the digest, stamp and path of each file, with the path as the tool used it; one per line.
        lookups: where the tools looked first.
        bound_to: the sources and include directories of the build, if a file was found relative to them: a checkout
            elsewhere may have another file there; otherwise empty.
    """

    files: str = ""
    lookups: Lookups = Lookups()
    bound_to: tuple[str, ...] = ()

    @classmethod
    def of(cls, files: Iterable[str], lookups: Lookups | None = None, bound_to: Iterable[str] = ()) -> Inputs:
        """Return files with their current digests and stamps.

        Raises:
            ValueError: when a path contains a newline.
        """
        rows = ((digest_of(path), stamp_of(path), path) for path in sorted(set(files)))
        return cls(_lines(rows), lookups or Lookups(), tuple(bound_to))

    def paths(self) -> list[str]:
        """Return the files' paths."""
        return _columns(self.files, 3)[2]

    def is_as_stamped(self, places: Iterable[str] | None) -> bool:
        """Return whether no stamp has changed, so that no file needs reading; ``places`` is as in :meth:`changed`."""
        try:
            _, stamps, paths = _columns(self.files, 3)
            watched_stamps, watched = _columns(self.lookups.watched, 2)
        except ValueError:
            return False
        is_here = not self.bound_to or places is None or tuple(places) == self.bound_to
        return is_here and _stamps_of([*paths, *watched]) == [*stamps, *watched_stamps]

    def restamped(self) -> Inputs | None:
        """Return a copy with current stamps; None if a file is so new that its stamp might not show the next change."""
        try:
            digests, _, paths = _columns(self.files, 3)
            _, watched = _columns(self.lookups.watched, 2)
        except ValueError:
            return None
        now = _stamps_of([*paths, *watched])
        if not now or max(int(one) for stamp in now for one in stamp.split()[2:]) > time.time_ns() - _SETTLED_NS:
            return None
        files = _lines(zip(digests, now, paths, strict=False))
        lookups = self.lookups._replace(watched=_lines(zip(now[len(paths) :], watched, strict=True)))
        return self._replace(files=files, lookups=lookups)

    def changed(self, places: Iterable[str] | None = None, *, may_be_gone: bool = False) -> str:
        """Return what has changed since the build; empty if nothing has.

        Args:
            places: the caller's sources and include directories; None when unknown.
            may_be_gone: ignore missing files: without a compiler its headers are often missing too.
        """
        if self.bound_to and places is not None and tuple(places) != self.bound_to:
            return f"the sources, which were those at {self.bound_to[0]}"
        try:
            digests, stamps, paths = _columns(self.files, 3)
            for digest, stamp, path in zip(digests, stamps, paths, strict=True):
                now = stamp_of(path)
                if now != stamp and (now or not may_be_gone) and digest_of(path) != digest:
                    return path
            return self.lookups.appeared()
        except ValueError:
            return "list of inputs, which is damaged,"

    def described(self) -> dict[str, Any]:
        """Return this as JSON values, without ``lookups.missing``, which is long and seldom needed."""
        found = self.lookups
        return {
            "files": self.files,
            "folders": list(found.folders),
            "watched": found.watched,
            "missing": found.digest,
            "bound_to": list(self.bound_to),
        }

    @classmethod
    def parse(cls, described: Any, missing: str) -> Inputs:
        """Return the inputs from the result of ``described`` and ``lookups.missing``.

        Raises:
            ValueError: when the values have another form.
        """
        if not isinstance(described, dict) or {name: type(one) for name, one in described.items()} != _MEMBERS:
            msg = "'inputs' does not have the expected members"
            raise ValueError(msg)
        if not set(map(type, [*described["folders"], *described["bound_to"]])) <= {str}:
            msg = "'inputs' has values of the wrong types"
            raise ValueError(msg)
        lookups = Lookups(tuple(described["folders"]), described["watched"], missing, described["missing"])
        return cls(described["files"], lookups, tuple(described["bound_to"]))


_MEMBERS = {"files": str, "folders": list, "watched": str, "missing": str, "bound_to": list}


def _columns(lines: str, count: int) -> list[list[str]]:
    """Return the text from ``_lines``, column by column.

    Raises:
        ValueError: when a line has fewer columns.
    """
    rows = [line.split("\t", count - 1) for line in lines.split("\n")] if lines else []
    if {*map(len, rows)} - {count}:
        msg = "a line has fewer columns than it should"
        raise ValueError(msg)
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(count)]


def _lines(rows: Iterable[tuple[object, ...]]) -> str:
    """Return rows as lines of text.

    Raises:
        ValueError: when a path contains a newline: a build cannot depend on such a file.
    """
    lines = []
    for row in rows:
        if "\n" in str(row[-1]):
            msg = f"the path {row[-1]!r} contains a newline"
            raise ValueError(msg)
        lines.append("\t".join(map(str, row)))
    return "\n".join(lines)
