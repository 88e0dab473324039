"""Where built ops are kept: private to the user, each binary checked against its metadata before it is loaded.

An entry is a folder ``<op>-<fingerprint>`` with the binary and ``metadata.json``; the metadata is published last, so an
entry without it does not exist yet. A directory that cannot be written is replaced, for this process, by a private
temporary one.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..environment import home_problem
from .entry import METADATA, UNREADABLE, read_entry, write_entry
from .errors import CacheError
from .lock import NO_LOCKS, is_locked

if TYPE_CHECKING:
    from .entry import Entry

__all__ = ["Cache", "open_cache", "replace_full_cache"]

_logger = logging.getLogger(__name__)
_STAGING = "staging-"
_BESIDE = (".lock", ".holder", ".log")
_FIX = "set ANYACCEL_CACHE_DIR"
_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ENOENT}


class Cache:
    """A directory of built ops.

    Args:
        root: the directory; made with mode 0700, as its parents are, where it does not exist.
        behind: another cache, to look into for what is not here.
        writable: False to look only, at a directory that exists.

    Raises:
        CacheError: when it belongs to someone else, or others may write to it.
        OSError: when it can be neither made nor written.
    """

    def __init__(self, root: Path, *, behind: Cache | None = None, writable: bool = True) -> None:
        self.root = root
        self._behind = behind
        if writable:
            for folder in (*reversed(root.parents), root):  # Path.mkdir(parents=True) leaves the parents to the umask
                if not folder.exists():
                    folder.mkdir(mode=0o700, exist_ok=True)
        _check_owner(root)
        if writable:
            _check_writable(root)

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
                f"finding the user's cache directory failed: got no home directory, as {problem}; expected one. "
                f"Fix: {_FIX}, or HOME."
            )
            raise CacheError(msg)
        return Path(platformdirs.user_cache_dir("anyaccel"))

    def folder(self, op: str, fingerprint: str) -> Path:
        """Return the folder of an entry, which may not exist."""
        return self.root / f"{op}-{fingerprint}"

    def lock_file(self, op: str, fingerprint: str) -> Path:
        """Return the lock file of an entry."""
        return self.root / f"{op}-{fingerprint}.lock"

    def log_file(self, op: str, fingerprint: str) -> Path:
        """Return the file that keeps what the compiler printed when the entry's build failed."""
        return self.root / f"{op}-{fingerprint}.log"

    def staging(self, op: str, fingerprint: str) -> Path:
        """Make and return an empty folder beside the entries, to build in while the entry's lock is held.

        What an earlier builder left there when it was killed is removed, though not waited for: its compilers may still run.
        """
        prefix = f"{_STAGING}{op}-{fingerprint}-"
        for abandoned in self.root.glob(f"{prefix}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self.root))

    def find(self, op: str, fingerprint: str) -> Entry | None:
        """Return a finished entry whose binary is what was published; None when there is none.

        A binary that differs from its metadata is reported and counts as absent.
        """
        try:
            entry = read_entry(self.folder(op, fingerprint))
        except FileNotFoundError:
            return None if self._behind is None else self._behind.find(op, fingerprint)
        except UNREADABLE as error:
            _logger.warning("the cached op '%s' is unreadable and is built again: %s", op, error)
            return None
        if not entry.is_intact():
            _logger.warning("the cached op '%s' differs from its metadata and is built again: %s", op, entry.binary)
            return None
        changed = entry.changed_header()
        if changed:
            _logger.info("the cached op '%s' was built with another %s and is built again", op, changed)
            return None
        return entry

    def find_key(self, op: str, key: str) -> Entry | None:
        """Return a finished entry of an op that is what ``key`` names, whichever compiler built it; None when there is none."""
        named = (entry for entry in self.entries() if entry.op == op and entry.facts.get("key") == key)
        return next((entry for entry in named if entry.is_intact() and not entry.changed_header()), None)

    def entries(self) -> list[Entry]:
        """Return every finished entry, damaged ones included, by name."""
        found = []
        for metadata in sorted(self.root.glob(f"*/{METADATA}")):
            if metadata.parent.name.startswith(_STAGING):
                continue
            try:
                found.append(read_entry(metadata.parent))
            except UNREADABLE as error:
                _logger.warning("%s is unreadable: %s", metadata, error)
        return found

    def remove(self, entry: Entry) -> None:
        """Remove an entry, its metadata first, so that nobody finds half of it; whoever has loaded it keeps it."""
        folder = entry.binary.parent
        (folder / METADATA).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        for suffix in _BESIDE:
            folder.with_name(folder.name + suffix).unlink(missing_ok=True)

    def remove_leftovers(self, oldest: float) -> None:
        """Remove what builders that failed or were killed left behind, where nobody is building now.

        Args:
            oldest: only what was last changed before this time, in seconds since the epoch.
        """
        for file in self.root.iterdir():
            if file.name.startswith(_STAGING):
                entry = file.name.removeprefix(_STAGING).rpartition("-")[0]
            elif file.suffix in _BESIDE and not file.with_suffix("").is_dir():
                entry = file.stem
            else:
                continue
            if file.lstat().st_mtime <= oldest and not is_locked(self.root / f"{entry}.lock"):
                _remove(file)

        for file in (self.root / _SOURCES).glob("*"):
            if file.lstat().st_mtime <= oldest:
                _remove(file)

    def keep_source(self, text: str, suffix: str) -> Path:
        """Return a file with a source that was given as text; its name is decided by its content.

        Args:
            text: the source.
            suffix: of the file, such as ``".cu"``.
        """
        content = text.encode()
        folder = self.root / _SOURCES
        folder.mkdir(mode=0o700, exist_ok=True)
        file = folder / f"kernel-{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
        if not file.is_file() or file.read_bytes() != content:
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as staged:
                staged.write(content)
            os.replace(staged.name, file)
        return file

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

    def publish(self, op: str, fingerprint: str, built: Path, facts: dict[str, Any]) -> Entry:
        """Move a built binary into its entry, the metadata last, and return the entry."""
        folder = self.folder(op, fingerprint)
        if folder.is_file() or folder.is_symlink():
            folder.unlink()
        folder.mkdir(mode=0o700, exist_ok=True)
        return write_entry(folder, op, built, facts)


_SOURCES = "sources"
_HOMELESS = Path("~")
"""Stands for the cache of a user who has no home directory."""
_opened: dict[Path, Cache] = {}
_opening = threading.Lock()


def open_cache(directory: Path | None = None) -> Cache:
    """Return the cache in a directory, the user's own by default.

    A directory that cannot be written is replaced by a private temporary one, removed when this process ends; this is
    said once.

    Raises:
        CacheError: when the directory belongs to someone else, or others may write to it.
    """
    problem = "" if directory else home_problem()
    wanted = _HOMELESS if problem else directory or Cache.default_root()
    with _opening:
        if wanted not in _opened:
            try:
                _opened[wanted] = Cache(wanted) if not problem else _temporary_cache(problem, None)
            except OSError as error:
                _opened[wanted] = _temporary_cache(f"{wanted} cannot be written ({error.strerror})", _read_only(wanted))
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
    try:
        return (
            Cache(root, writable=False) if os.path.isdir(root) else None
        )  # Path.is_dir raises where root is out of reach
    except OSError:
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
    return Cache(folder, behind=behind)


def _remove(file: Path) -> None:
    if file.is_dir():
        shutil.rmtree(file, ignore_errors=True)
    else:
        file.unlink(missing_ok=True)


def _check_writable(root: Path) -> None:
    with tempfile.TemporaryFile(dir=root):
        pass


def _check_owner(root: Path) -> None:
    if not hasattr(os, "getuid"):
        return
    status = root.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        msg = (
            f"opening the cache failed: got {root}, owned by user {status.st_uid} with mode {stat.S_IMODE(status.st_mode):o}; "
            f"expected a directory of user {os.getuid()} that nobody else may write to. "
            f"Fix: chmod 700 '{root}', or set ANYACCEL_CACHE_DIR."
        )
        raise CacheError(msg)
