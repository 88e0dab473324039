"""The files that decided a build and that its fingerprint does not cover, and the places where the tools looked first.

A file counts by its content. Its stamp (inode, size, times) only tells whether to read it again: the time of the last change
of an inode cannot be set back, and a build is thrown away when a file changed while it was compiled.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from .directory import digest_of_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["ChangedMeanwhile", "Inputs", "Lookups", "changed_since", "digest_of", "has_changed_since", "stamp_of"]


_SETTLED_NS = 2_000_000_000
"""A change within a tick of the disk's clock, at most this long, may leave the times that another one left."""


def stamp_of(path: str) -> str:
    """Return what changes when a file or directory does; empty when there is none."""
    return "".join(_stamps_of([path]))


def _stamps_of(paths: list[str]) -> list[str]:
    """Return the stamps of files and directories that exist; none where one of them does not."""
    try:
        return [f"{one.st_ino} {one.st_size} {one.st_mtime_ns} {one.st_ctime_ns}" for one in map(os.stat, paths)]
    except OSError:
        return []


def digest_of(path: str) -> str:
    """Return the digest of a file's content; empty for what is no regular file or cannot be read."""
    try:
        return digest_of_regular(path, follow_link=True)
    except OSError:
        return ""


class ChangedMeanwhile(Exception):  # noqa: N818  # no fault: the build starts again
    """A file that a build read is no longer what it read."""


def changed_since(paths: Iterable[str], began_ns: int) -> str:
    """Return a file that was changed or put in its place since a time of the files' disk, links and folders included.

    An edit that was taken back, and an older file or folder that was moved here, change an inode's time too.
    """
    folders: set[str] = set()
    for path in paths:
        for place in _links_of(path):
            if has_changed_since(place, began_ns):
                return path
            while (place := os.path.dirname(place)) not in folders and place != "/":
                folders.add(place)
                if _was_moved_since(place, began_ns):
                    return path
    return ""


def has_changed_since(place: str, began_ns: int) -> bool:
    """Return whether a file, or a link itself, was changed since a time; what is gone was."""
    try:
        status = os.lstat(place)
    except OSError:
        return True
    return max(status.st_mtime_ns, status.st_ctime_ns) >= began_ns


def _was_moved_since(folder: str, began_ns: int) -> bool:
    """Return whether a folder was put in its place since a time: what only gets and loses files changes both of its times."""
    try:
        status = os.lstat(folder)
    except OSError:
        return True
    return status.st_ctime_ns >= began_ns > status.st_mtime_ns


def _links_of(path: str) -> list[str]:
    """Return the links that a path leads through, and where it ends."""
    found = []
    place = os.path.abspath(path)
    for _ in range(40):  # as many as the kernel follows
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
    """Where files would be found before those that were.

    Attributes:
        folders: the directories that are searched for every name, in order.
        watched: every directory in which one of these files would appear; lines of stamp and path.
        missing: JSON that is only looked into when a directory has changed: for each name, in how many of the first of these
            folders it is not; and the paths of other files that are not there.
        digest: of ``missing``.
    """

    folders: tuple[str, ...] = ()
    watched: str = ""
    missing: str = "[{},[]]"
    digest: str = ""

    @classmethod
    def of(cls, folders: Sequence[str], names: Mapping[str, int], beside: Mapping[str, Iterable[str]]) -> Lookups:
        """Return the lookups, with the stamps as they are now."""
        aside = sorted({f"{folder}/{name}" for folder, missing in beside.items() for name in missing})
        searched = {f"{folder}/{name}" for name, before in names.items() for folder in folders[:before]}
        watched = sorted({_existing(os.path.dirname(path)) for path in (*searched, *aside)})
        missing = json.dumps([dict(sorted(names.items())), aside], separators=(",", ":"))
        return cls(tuple(folders), _lines((stamp_of(place), place) for place in watched), missing, _digest(missing))

    def appeared(self) -> str:
        """Return a file that is now found earlier than the one that was; empty when there is none.

        Raises:
            ValueError: when these are no lookups.
        """
        stamps, places = _columns(self.watched, 2)
        if _stamps_of(places) == stamps:
            return ""
        if _digest(self.missing) != self.digest:
            msg = "the names that were looked for are damaged"
            raise ValueError(msg)
        names, aside = json.loads(self.missing)
        earlier = (f"{folder}/{name}" for name, before in names.items() for folder in self.folders[:before])
        return next((path for path in (*earlier, *aside) if os.path.isfile(path)), "")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _existing(place: str) -> str:
    """Return the nearest directory above a place that exists, in which something must appear first."""
    while not os.path.isdir(place) and place not in ("", "/"):
        place = os.path.dirname(place)
    return place or "/"


class Inputs(NamedTuple):
    """What decided a build besides its fingerprint.

    What is long is kept as text, which is read from metadata much faster than a list, and looked into line by line.

    Attributes:
        files: the digest, the stamp and the path of each file, as the tool spelled it; one on each line.
        lookups: where the tools looked first.
        bound_to: the sources and include directories of the build, where a file was found relative to them: a checkout
            elsewhere may have another; empty where no file was.
    """

    files: str = ""
    lookups: Lookups = Lookups()
    bound_to: tuple[str, ...] = ()

    @classmethod
    def of(cls, files: Iterable[str], lookups: Lookups | None = None, bound_to: Iterable[str] = ()) -> Inputs:
        """Return files with their digests and stamps as they are now.

        Raises:
            ValueError: when a path has an end of line.
        """
        rows = ((digest_of(path), stamp_of(path), path) for path in sorted(set(files)))
        return cls(_lines(rows), lookups or Lookups(), tuple(bound_to))

    def paths(self) -> list[str]:
        """Return the files' paths."""
        return [line.split("\t", 2)[2] for line in self.files.splitlines()]

    def is_as_stamped(self, places: Iterable[str] | None) -> bool:
        """Return whether every stamp is what it was, so that nothing need be read; ``places`` as of :meth:`changed`."""
        try:
            _, stamps, paths = _columns(self.files, 3)
            watched_stamps, watched = _columns(self.lookups.watched, 2)
        except ValueError:
            return False
        is_here = not self.bound_to or places is None or tuple(places) == self.bound_to
        return is_here and _stamps_of([*paths, *watched]) == [*stamps, *watched_stamps]

    def restamped(self) -> Inputs | None:
        """Return this with the stamps as they are now; None where one is so new that it may not tell the next change."""
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
        """Return what is no longer as it was when this was built; empty when all is.

        Args:
            places: the sources and include directories of who asks; None when they are not known.
            may_be_gone: a file that is missing does not count: without a compiler its headers are often missing too.
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
        """Return this as JSON values, without ``lookups.missing``, which is long and seldom looked into."""
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
        """Return what ``described`` gave, and ``lookups.missing``.

        Raises:
            ValueError: when it is something else.
        """
        if not isinstance(described, dict) or {name: type(one) for name, one in described.items()} != _MEMBERS:
            msg = "'inputs' has other members than it should"
            raise ValueError(msg)
        if not set(map(type, [*described["folders"], *described["bound_to"]])) <= {str}:
            msg = "'inputs' has values of other types than it should"
            raise ValueError(msg)
        lookups = Lookups(tuple(described["folders"]), described["watched"], missing, described["missing"])
        return cls(described["files"], lookups, tuple(described["bound_to"]))


_MEMBERS = {"files": str, "folders": list, "watched": str, "missing": str, "bound_to": list}


def _columns(lines: str, count: int) -> list[list[str]]:
    """Return what ``_lines`` was given, column by column.

    Raises:
        ValueError: when a line has fewer columns.
    """
    rows = [line.split("\t", count - 1) for line in lines.splitlines()]
    if {*map(len, rows)} - {count}:
        msg = "a line has fewer columns than it should"
        raise ValueError(msg)
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(count)]


def _lines(rows: Iterable[tuple[object, ...]]) -> str:
    """Return rows as lines.

    Raises:
        ValueError: when a path has an end of line, which no build may depend on.
    """
    lines = ["\t".join(map(str, row)) for row in rows]
    cut = next((line for line in lines if len(line.splitlines()) != 1), None)
    if cut is not None:
        msg = f"got a path with an end of line, {cut!r}; expected none"
        raise ValueError(msg)
    return "\n".join(lines)
