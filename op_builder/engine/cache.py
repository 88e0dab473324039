"""Where built ops are kept: private to the user, each binary checked against its metadata before it is loaded.

An entry is a folder ``<op>-<fingerprint>`` with the binary and ``metadata.jsonl``; the metadata is published last, so an
entry without it does not exist yet. Nothing that is read here is trusted before it has been checked, and nothing outside is
ever opened for writing or removed. A directory that cannot be written is replaced, for this process, by a private temporary
one.
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
import tempfile
import threading
from pathlib import Path
from typing import Any

from .directory import NO_LOCKS, Directory, try_to_remove
from .entry import METADATA, UNREADABLE, Entry, named_by_content, parse_entry, text_of
from .environment import home_problem
from .errors import CacheError
from .inputs import Inputs, digest_of

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
        root: the directory; made with mode 0700, as its parents are, where it does not exist.
        behind: another cache, to look into for what is not here.
        writable: False to look only, at a directory that exists.

    Raises:
        CacheError: when it or a parent belongs to someone else, or others may write to it.
        OSError: when it can be neither made nor written.
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
            for folder in (*reversed(self.root.parents), self.root):  # Path.mkdir leaves the parents to the umask
                if not folder.exists():
                    folder.mkdir(mode=0o700, exist_ok=True)
        return Directory(self.root, is_shared=not self._writable)

    @property
    def directory(self) -> Directory:
        """The directory, checked again each time; opened again where it was removed and made anew."""
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
            msg = (
                f"finding the user's cache directory failed: there is no home directory: {problem}. "
                f"Fix: {_FIX}, or HOME."
            )
            raise CacheError(msg)
        return Path(platformdirs.user_cache_dir("anyaccel"))

    def folder(self, op: str, fingerprint: str) -> Path:
        """Return the folder of an entry, which may not exist."""
        return self.root / f"{op}-{fingerprint}"

    def lock_file(self, op: str, fingerprint: str) -> Path:
        """Return the lock file of an entry; what is there and no regular file makes room for it."""
        return self.own_file(f"{op}-{fingerprint}{LOCK}")

    def log_file(self, op: str, fingerprint: str) -> Path:
        """Return the file for what the compiler prints when the entry's build fails; an earlier one is gone."""
        name = f"{op}-{fingerprint}.log"
        self.directory.remove(name)
        return self.root / name

    def own_file(self, name: str) -> Path:
        """Return the path of a file here; a link, or what is no regular file, makes room for it."""
        directory = self.directory
        try:
            if not stat.S_ISREG(directory.status(name).st_mode):
                directory.remove(name)
        except FileNotFoundError:
            pass
        return self.root / name

    def staging(self, op: str, fingerprint: str) -> Path:
        """Make and return an empty folder beside the entries, to build in while the entry's lock is held.

        What an earlier builder left there when it was killed is removed, though not waited for: its compilers may still run.
        """
        directory = self.directory
        prefix = f"{STAGING}{op}-{fingerprint}-"
        for name in directory.names():
            if name.startswith(prefix):
                try_to_remove(directory, name)
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self.root))

    def find(self, op: str, fingerprint: str, places: tuple[str, ...] | None = None) -> Entry | None:
        """Return a finished entry whose binary is what was published, and whose inputs are what they were; else None.

        Args:
            op: the op's name.
            fingerprint: what the entry is named after.
            places: the sources and include directories of who asks.
        """
        name = f"{op}-{fingerprint}"
        try:
            entry = self.read(name)
        except FileNotFoundError:
            return None if self._behind is None else self._behind.find(op, fingerprint, places)
        except UNREADABLE as error:
            _logger.warning("the cached op '%s' is unreadable and is built again: %s", op, error)
            return None
        if not self.is_intact(entry):
            if self.directory.has_folder(name):  # else it has just been cleared
                _logger.warning("the cached op '%s' differs from its metadata and is built again: %s", op, entry.binary)
            return None
        if entry.inputs.is_as_stamped(places):
            return entry
        restamped = entry.inputs.restamped()  # before anything is read: what changes later differs from these stamps
        changed = entry.inputs.changed(places)
        if changed:
            _logger.info("the cached op '%s' was built with another %s and is built again", op, changed)
            return None
        if restamped is not None:
            from .restamping import keep_stamps

            keep_stamps(self.directory, self.lock_file(op, fingerprint), entry, restamped)
        return entry

    def find_key(self, op: str, key: str, places: tuple[str, ...]) -> Entry | None:
        """Return a finished entry of an op that is what ``key`` names, whichever compiler built it; None when there is none."""
        named = (entry for entry in self.entries() if entry.op == op and entry.facts.get("key") == key)
        fitting = (entry for entry in named if not entry.inputs.changed(places, may_be_gone=True))
        return next((entry for entry in fitting if self.is_intact(entry)), None)

    def is_intact(self, entry: Entry) -> bool:
        """Return whether an entry's binary is what was published: a regular file here, and no link to one elsewhere."""
        try:
            return self._opened.digest(entry.binary.name, folder=entry.name) == entry.sha256
        except OSError:
            return False

    def read(self, name: str) -> Entry:
        """Return the entry in a folder here.

        Raises:
            FileNotFoundError: when there is none.
            OSError, ValueError, RecursionError: (``UNREADABLE``) when it is damaged.
        """
        entry = parse_entry(self.directory.read(METADATA, folder=name), self.root / name)
        if entry.name != name:
            msg = f"its metadata are those of {entry.name!r}"
            raise ValueError(msg)
        return entry

    def entries(self) -> list[Entry]:
        """Return every finished entry, those with a damaged binary included, by name; unreadable ones are logged."""
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
        """Return what is known of an entry's binary; None when it is missing, or no regular file."""
        try:
            status = entry.binary.lstat()
        except OSError:
            return None
        return status if stat.S_ISREG(status.st_mode) else None

    def verify(self) -> tuple[list[Path], list[Path]]:
        """Return the binaries that are what was published, and what differs or cannot be read."""
        entries = {entry.name: entry for entry in self.entries()}
        names = [name for name in self.directory.names() if re.fullmatch(ENTRY, name)]
        intact = [entry.binary for entry in entries.values() if self.is_intact(entry)]
        damaged = [entries[name].binary if name in entries else self.root / name for name in names]
        return intact, [path for path in damaged if path not in intact]

    def keep_source(self, text: str, suffix: str) -> Path:
        """Return a file with a source that was given as text; its name is decided by its content.

        Args:
            text: the source.
            suffix: of the file, such as ``".cu"``.
        """
        content = text.encode()
        directory = self.directory
        directory.make_folder(SOURCES)
        name = f"kernel-{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
        try:
            kept = directory.read(name, folder=SOURCES)
        except OSError:
            kept = b""
        if kept != content:
            directory.write(name, content, folder=SOURCES)
        return self.root / SOURCES / name

    def is_refused_by(self, error: OSError) -> bool:
        """Return whether an error says that this cache cannot be written, rather than that something else is wrong."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            return True
        if error.errno in NO_LOCKS and str(error.filename).endswith(".lock"):
            return True
        return error.errno in _UNWRITABLE and str(self.root) in str(error.filename)

    def refusal(self, error: OSError) -> CacheError:
        """Return the error to raise when this cache cannot take a build either."""
        expected = "locks" if error.errno in NO_LOCKS else "room"
        msg = f"writing the build failed: got {error}; expected {expected} in {self.root}. Fix: {_FIX} to a disk with {expected}."
        return CacheError(msg)

    def publish(
        self, op: str, fingerprint: str, built: Path, facts: dict[str, Any], inputs: Inputs | None = None
    ) -> Entry:
        """Move a built binary into its entry, the metadata last, and return the entry."""
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
"""Stands for the cache of a user who has no home directory."""
_opened: dict[Path, Cache] = {}
_opening = threading.Lock()


def open_cache(directory: Path | None = None) -> Cache:
    """Return the cache in a directory, the user's own by default.

    A directory that cannot be written is replaced by a private temporary one, removed when this process ends; this is
    said once. So is the user's own when it is not the user's alone.

    Raises:
        CacheError: when the directory that is asked for, or a parent, belongs to someone else, or others may write to it.
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
    """Return a temporary cache to use from now on instead of one whose disk is full."""
    with _opening:
        fresh = _temporary_cache(f"{cache.root} cannot take the build ({error.strerror})", cache)
        for wanted, opened in _opened.items():
            if opened is cache:
                _opened[wanted] = fresh
        return fresh


def _read_only(root: Path) -> Cache | None:
    try:  # Path.is_dir raises where root is out of reach
        return Cache(root, writable=False) if os.path.isdir(root) else None
    except (OSError, CacheError):
        return None


def _renew_lock() -> None:
    """Free a forked child of a lock whose holder, a thread of its parent, it does not have."""
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def _temporary_cache(reason: str, behind: Cache | None) -> Cache:
    try:
        folder = Path(tempfile.mkdtemp(prefix="anyaccel-"))
    except OSError as error:
        msg = f"making a temporary cache failed: got {error}; expected a place to write, as {reason}. Fix: {_FIX}."
        raise CacheError(msg) from error
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    _logger.warning("%s; building in %s for this process only. Fix: %s.", reason, folder, _FIX)
    cache = Cache(folder, behind=behind)
    if behind is not None:  # what tools said of themselves, so that they need not be asked
        with contextlib.suppress(OSError):
            cache.directory.write(TOOLS, behind.directory.read(TOOLS))
    return cache
