"""The files that decided a build and that its fingerprint does not cover, and the places where the tools looked first.

A file counts by its content. Its stamp (inode, size, times) only tells whether to read it again: the time of the last change
of an inode cannot be set back, and a build is thrown away when a file changed while it was compiled.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .directory import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Inputs", "Lookups", "changed_since", "digest_of", "stamp_of"]


def stamp_of(path: str) -> str:
    """Return what changes when a file or directory does; empty when there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def digest_of(path: str) -> str:
    """Return the digest of a file's content; empty for what is no regular file or cannot be read."""
    try:
        return hashlib.sha256(read_regular(path, follow_link=True)).hexdigest()
    except OSError:
        return ""


def changed_since(paths: Iterable[str], began_ns: int) -> str:
    """Return a file that was changed or put in its place since a time of the files' disk, links on the way included.

    An edit that was taken back, and an older file that was moved here, change the inode's time too.
    """
    for path in paths:
        for place in _links_of(path):
            with contextlib.suppress(OSError):  # a file that is gone is found by its content
                status = os.lstat(place)
                if max(status.st_mtime_ns, status.st_ctime_ns) >= began_ns:
                    return path
    return ""


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


@dataclass(frozen=True)
class Lookups:
    """Where files would be found before those that were.

    Attributes:
        folders: the directories that are searched for every name, in order.
        names: for each name, in how many of the first of these folders it is not.
        beside: for further directories, the names that are looked for there first and that are not there.
        stamps: of every directory in which one of these files would appear.
    """

    folders: tuple[str, ...] = ()
    names: Mapping[str, int] = field(default_factory=dict)
    beside: Mapping[str, list[str]] = field(default_factory=dict)
    stamps: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folders: Iterable[str], names: Mapping[str, int], beside: Mapping[str, Iterable[str]]) -> Lookups:
        """Return the lookups, with the stamps as they are now."""
        searched = tuple(folders)
        aside = {folder: sorted(set(missing)) for folder, missing in beside.items() if missing}
        places = {os.path.dirname(f"{folder}/{name}") for name, before in names.items() for folder in searched[:before]}
        places |= {os.path.dirname(f"{folder}/{name}") for folder, missing in aside.items() for name in missing}
        watched = {_existing(place) for place in places}
        return cls(searched, dict(names), aside, {place: stamp_of(place) for place in sorted(watched)})

    def appeared(self) -> str:
        """Return a file that is now found earlier than the one that was; empty when there is none."""
        if all(stamp_of(place) == stamp for place, stamp in self.stamps.items()):  # a list, as a generator is slower
            return ""
        candidates = [f"{folder}/{name}" for name, before in self.names.items() for folder in self.folders[:before]]
        candidates += [f"{folder}/{name}" for folder, missing in self.beside.items() for name in missing]
        return next((path for path in candidates if os.path.isfile(path)), "")


def _existing(place: str) -> str:
    """Return the nearest directory above a place that exists, in which something must appear first."""
    while not os.path.isdir(place) and place not in ("", "/"):
        place = os.path.dirname(place)
    return place or "/"


@dataclass(frozen=True)
class Inputs:
    """What decided a build besides its fingerprint.

    Attributes:
        files: the digest of each file, by its path as the tool spelled it.
        stamps: their stamps.
        lookups: where the tools looked first.
        bound_to: the sources and include directories of the build, where a file was found relative to them: a checkout
            elsewhere may have another; empty where no file was.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    stamps: Mapping[str, str] = field(default_factory=dict)
    lookups: Lookups = field(default_factory=Lookups)
    bound_to: tuple[str, ...] = ()

    @classmethod
    def of(cls, files: Iterable[str], lookups: Lookups | None = None, bound_to: Iterable[str] = ()) -> Inputs:
        """Return files with their digests and stamps as they are now."""
        paths = sorted(set(files))
        stamps = {path: stamp_of(path) for path in paths}
        return cls({path: digest_of(path) for path in paths}, stamps, lookups or Lookups(), tuple(bound_to))

    def changed(self, places: Iterable[str] | None = None, *, may_be_gone: bool = False) -> str:
        """Return what is no longer as it was when this was built; empty when all is.

        Args:
            places: the sources and include directories of who asks; None when they are not known.
            may_be_gone: a file that is missing does not count: without a compiler its headers are often missing too.
        """
        if self.bound_to and places is not None and tuple(places) != self.bound_to:
            return f"the sources, which were those at {self.bound_to[0]}"
        for path, stamp in self.stamps.items():
            now = stamp_of(path)
            if now != stamp and (now or not may_be_gone) and digest_of(path) != self.files[path]:
                return path
        return self.lookups.appeared()

    def described(self) -> dict[str, Any]:
        """Return this as JSON values; what is long as one text, as a text of lines is read much faster than a list."""
        found = self.lookups
        return {
            "files": _lines((digest, self.stamps[path], path) for path, digest in self.files.items()),
            "folders": list(found.folders),
            "names": _lines((before, name) for name, before in found.names.items()),
            "beside": {folder: list(names) for folder, names in found.beside.items()},
            "watched": _lines((stamp, place) for place, stamp in found.stamps.items()),
            "bound_to": list(self.bound_to),
        }

    @classmethod
    def parse(cls, described: Any) -> Inputs:
        """Return what ``described`` gave.

        Raises:
            ValueError: when it is something else.
        """
        if not isinstance(described, dict) or {name: type(one) for name, one in described.items()} != _MEMBERS:
            msg = "'inputs' has other members than it should"
            raise ValueError(msg)
        listed = [*described["folders"], *described["bound_to"]]
        for names in described["beside"].values():
            listed += names if type(names) is list else [None]
        if not set(map(type, listed)) <= {str}:
            msg = "'inputs' has values of other types than it should"
            raise ValueError(msg)
        rows = [line.split("\t", 2) for line in described["files"].splitlines()]
        files = {path: digest for digest, _, path in rows}  # raises ValueError where a line has fewer parts
        watched = [line.split("\t", 1) for line in described["watched"].splitlines()]
        names = [line.split("\t", 1) for line in described["names"].splitlines()]
        lookups = Lookups(
            tuple(described["folders"]),
            {name: abs(int(before)) for before, name in names},
            described["beside"],
            {place: stamp for stamp, place in watched},
        )
        return cls(files, {path: stamp for _, stamp, path in rows}, lookups, tuple(described["bound_to"]))


_MEMBERS = {"files": str, "folders": list, "names": str, "beside": dict, "watched": str, "bound_to": list}


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
