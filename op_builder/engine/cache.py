"""The cache of built ops: private to the user; each binary is checked against its metadata before it is loaded.

An entry is a folder ``<op>-<fingerprint>`` with the binary and ``metadata.jsonl``; the metadata is published last, so an
entry without it does not exist yet. Everything read from the cache is checked before it is trusted, and nothing outside it is
ever opened for writing or removed. If the directory cannot be written, this process uses a private temporary directory
instead.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import logging
import os
import re
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

from .directory import NO_LOCKS, Directory, try_to_remove
from .entry import METADATA, UNREADABLE, Entry, named_by_content, parse_entry, text_of
from .environment import home_problem
from .errors import CacheError
from .inputs import Inputs, digest_of
from .scratch import private_folder

__all__ = ["ENTRY", "LOCK", "SOURCES", "STAGING", "TOOLS", "Cache", "open_cache", "replace_full_cache"]

_logger = logging.getLogger(__name__)
STAGING = "staging-"
LOCK = ".lock"
SOURCES = "sources"
TOOLS = "toolchains.json"
ENTRY = r"[A-Za-z_][A-Za-z_0-9]*-[0-9a-f]{32}"
_FIX = "set ANYACCEL_CACHE_DIR"
_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ENOENT}


class Cache:
    """A directory of built ops.

    Args:
        root: the directory; it and its parents are made with mode 0700 if they do not exist.
        behind: another cache, to search for entries that are not in this one.
        writable: False to only read from an existing directory.

    Raises:
        CacheError: when another user owns the directory or a parent, or may write to it.
        OSError: when the directory can be neither made nor written.
    """

    def __init__(self, root: Path, *, behind: Cache | None = None, writable: bool = True) -> None:
        self.root = root
        self._behind = behind
        self._writable = writable
        self._opened = self._open()
        if writable:
            self._opened.require_writable()

    def _open(self) -> Directory:
        if self._writable and not os.path.isdir(self.root):
            for folder in (*reversed(self.root.parents), self.root):  # Path.mkdir ignores the mode for parents
                if not folder.exists():
                    folder.mkdir(mode=0o700, exist_ok=True)
                    folder.chmod(0o700)  # also with a umask that takes the user's own rights
        return Directory(self.root, is_shared=not self._writable)

    @property
    def directory(self) -> Directory:
        """The directory, checked again on each access; opened again if it was removed and created again."""
        if not self._opened.is_current():
            self._opened = self._open()
        return self._opened

    @staticmethod
    def default_root() -> Path:
        """Return the user's own cache directory.

        Raises:
            CacheError: when the user has no home directory.
        """
        import platformdirs

        problem = home_problem()
        if problem:
            msg = f"finding the user's cache directory failed: {problem}. Fix: {_FIX}, or HOME."
            raise CacheError(msg)
        return Path(platformdirs.user_cache_dir("anyaccel"))

    def folder(self, op: str, fingerprint: str) -> Path:
        """Return the folder of an entry; it may not exist."""
        return self.root / f"{op}-{fingerprint}"

    def lock_file(self, op: str, fingerprint: str) -> Path:
        """Return the lock file of an entry; removes anything else in its place."""
        return self.own_file(f"{op}-{fingerprint}{LOCK}")

    def log_file(self, op: str, fingerprint: str) -> Path:
        """Return the log file for a failed build of the entry; removes an earlier one."""
        name = f"{op}-{fingerprint}.log"
        self.directory.remove(name)
        return self.root / name

    def own_file(self, name: str) -> Path:
        """Return the path of a file in the cache; removes a link, or anything that is not a regular file, in its place.

        A hard link counts: filelock 4.1, the last for Python 3.10, empties the file that it locks and changes its mode.
        """
        directory = self.directory
        try:
            status = directory.status(name)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                directory.remove(name)
        except FileNotFoundError:
            pass
        return self.root / name

    def staging(self, op: str, fingerprint: str) -> Path:
        """Create an empty folder next to the entries to build in, and return it; the caller holds the entry's lock.

        Removes what a killed builder left there, without waiting for it: its compilers may still run.
        """
        directory = self.directory
        prefix = f"{STAGING}{op}-{fingerprint}-"
        for name in directory.names():
            if name.startswith(prefix):
                try_to_remove(directory, name)
        return private_folder(prefix, self.root)

    def find(self, op: str, fingerprint: str, places: tuple[str, ...] | None = None) -> Entry | None:
        """Return a finished entry whose binary and inputs are unchanged since it was published; otherwise None.

        Args:
            op: the op's name.
            fingerprint: the entry's fingerprint.
            places: the caller's sources and include directories.
        """
        name = f"{op}-{fingerprint}"
        try:
            entry = self.read(name)
        except FileNotFoundError:
            return None if self._behind is None else self._behind.find(op, fingerprint, places)
        except UNREADABLE as error:
            _logger.warning("the cached op '%s' is unreadable; building it again: %s", op, error)
            return None
        if not self.is_intact(entry):
            if self.directory.has_folder(name):  # otherwise it has just been cleared
                _logger.warning("the cached op '%s' differs from its metadata; building it again: %s", op, entry.binary)
            return None
        if entry.inputs.is_as_stamped(places):
            return entry
        restamped = entry.inputs.restamped()  # stamps first: a file that changes after them no longer matches
        changed = entry.inputs.changed(places)
        if changed:
            _logger.info("the cached op '%s' was built with another %s; building it again", op, changed)
            return None
        if restamped is not None:
            from .restamping import keep_stamps

            keep_stamps(self.directory, self.lock_file(op, fingerprint), entry, restamped)
        return entry

    def find_key(self, op: str, key: str, places: tuple[str, ...], variables: dict[str, str]) -> Entry | None:
        """Return an entry of an op with this ``key``, of any compiler, built with the same variables if one is; or None."""
        named = [entry for entry in self.entries() if entry.op == op and entry.facts.get("key") == key]
        named.sort(key=lambda entry: entry.facts.get("environment", {}) != variables)
        fitting = (entry for entry in named if not entry.inputs.changed(places, may_be_gone=True))
        return next((entry for entry in fitting if self.is_intact(entry)), None)

    def is_intact(self, entry: Entry) -> bool:
        """Return whether an entry's binary is unchanged since it was published: a regular file in the cache, not a link."""
        try:
            return self._opened.digest(entry.binary.name, folder=entry.name) == entry.sha256
        except OSError:
            return False

    def read(self, name: str) -> Entry:
        """Return the entry in a folder of the cache.

        Raises:
            FileNotFoundError: when the folder has no entry.
            OSError, ValueError, RecursionError: (``UNREADABLE``) when it is damaged.
        """
        entry = parse_entry(self.directory.read(METADATA, folder=name), self.root / name)
        if entry.name != name:
            msg = f"its metadata belong to {entry.name!r}"
            raise ValueError(msg)
        return entry

    def entries(self) -> list[Entry]:
        """Return every finished entry, sorted by name, including those with a damaged binary; logs unreadable ones."""
        found = []
        directory = self.directory
        for name in directory.names():
            if name.startswith(STAGING) or not directory.has_folder(name):
                continue
            try:
                found.append(self.read(name))
            except FileNotFoundError:
                continue
            except UNREADABLE as error:
                if re.fullmatch(ENTRY, name):
                    _logger.warning("%s is unreadable: %s", self.root / name / METADATA, error)
        return found

    def status(self, entry: Entry) -> os.stat_result | None:
        """Return the status of an entry's binary; None if it is missing or not a regular file."""
        try:
            status = entry.binary.lstat()
        except OSError:
            return None
        return status if stat.S_ISREG(status.st_mode) else None

    def verify(self) -> tuple[list[Path], list[Path]]:
        """Return the binaries that are unchanged since they were published, and those that differ or cannot be read."""
        entries = {entry.name: entry for entry in self.entries()}
        names = [name for name in self.directory.names() if re.fullmatch(ENTRY, name)]
        intact = [entry.binary for entry in entries.values() if self.is_intact(entry)]
        damaged = [entries[name].binary if name in entries else self.root / name for name in names]
        return intact, [path for path in damaged if path not in intact]

    def keep_source(self, text: str, suffix: str) -> Path:
        """Write a source text to a file named after its content, and return the file.

        Args:
            text: the source.
            suffix: the file's suffix, such as ``".cu"``.
        """
        content = text.encode()
        directory = self.directory
        directory.make_folder(SOURCES)
        name = f"kernel-{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
        try:
            kept: bytes | None = directory.read(name, folder=SOURCES)
        except OSError:
            kept = None
        if kept != content:
            directory.write(name, content, folder=SOURCES)
        return self.root / SOURCES / name

    def is_refused_by(self, error: OSError) -> bool:
        """Return whether an error means that this cache cannot be written, rather than some other problem."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            return True
        if error.errno in NO_LOCKS and str(error.filename).endswith(".lock"):
            return True
        return error.errno in _UNWRITABLE and str(self.root) in str(error.filename)

    def refusal(self, error: OSError) -> CacheError:
        """Return the error to raise when this cache cannot hold a build either."""
        expected = "locks" if error.errno in NO_LOCKS else "room"
        msg = f"writing the build failed: {error}. {self.root} needs {expected}. Fix: {_FIX} to a disk with {expected}."
        return CacheError(msg)

    def publish(
        self, op: str, fingerprint: str, built: Path, facts: dict[str, Any], inputs: Inputs | None = None
    ) -> Entry:
        """Move a built binary into its entry, metadata last, and return the entry."""
        digest = digest_of(os.fspath(built))
        name = f"{op}-{fingerprint}"
        binary = named_by_content(built, digest)
        entry = Entry(op, self.root / name / binary, digest, facts, inputs or Inputs(), name)
        directory = self.directory
        directory.make_folder(name)
        directory.remove(METADATA, folder=name)
        built.chmod(0o700)
        directory.take(built, binary, folder=name)
        directory.write(METADATA, text_of(entry), folder=name)
        for other in directory.names_in(name):
            if other not in (binary, METADATA):
                try_to_remove(directory, other, name)
        return entry


_HOMELESS = Path("~")
"""The key for the cache of a user who has no home directory."""
_opened: dict[Path, Cache] = {}
_opening = threading.Lock()


def open_cache(directory: Path | None = None) -> Cache:
    """Return the cache in a directory, by default the user's own.

    If the directory cannot be written, or the user's own directory is not private, the cache is a private temporary directory,
    which is removed when this process ends; a warning says so once.

    Raises:
        CacheError: when another user owns the given directory or a parent, or may write to it.
    """
    problem = "" if directory else home_problem()
    wanted = _HOMELESS if problem else directory or Cache.default_root()
    with _opening:
        if wanted not in _opened:
            try:
                _opened[wanted] = Cache(wanted) if not problem else _temporary_cache(problem, None)
            except OSError as error:
                _opened[wanted] = _temporary_cache(f"{wanted} cannot be written ({error.strerror})", _read_only(wanted))
            except CacheError as error:
                shared = _read_only(wanted)
                if directory is not None and shared is None:
                    raise
                _opened[wanted] = _temporary_cache(str(error), shared)
        return _opened[wanted]


def replace_full_cache(cache: Cache, error: OSError) -> Cache:
    """Return a temporary cache that replaces one whose disk is full."""
    with _opening:
        fresh = _temporary_cache(f"{cache.root} cannot take the build ({error.strerror})", cache)
        for wanted, opened in _opened.items():
            if opened is cache:
                _opened[wanted] = fresh
        return fresh


def _read_only(root: Path) -> Cache | None:
    try:  # Path.is_dir raises when root cannot be reached
        return Cache(root, writable=False) if os.path.isdir(root) else None
    except (OSError, CacheError):
        return None


def _renew_lock() -> None:
    """Replace the lock in a forked child: its holder, a thread of the parent, does not exist there."""
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def _temporary_cache(reason: str, behind: Cache | None) -> Cache:
    try:
        folder = private_folder("anyaccel-")
    except OSError as error:
        msg = f"making a temporary cache failed: {error}. A temporary cache is needed because {reason}. Fix: {_FIX}."
        raise CacheError(msg) from error
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    _logger.warning("%s; building in %s for this process only. Fix: %s.", reason, folder, _FIX)
    cache = Cache(folder, behind=behind)
    if behind is not None:  # keep the versions of the tools, so that they need not be run again
        with contextlib.suppress(OSError):
            cache.directory.write(TOOLS, behind.directory.read(TOOLS))
    return cache
