"""A directory, held open, that only the user can change, and the files in it.

Anyone who can rename a parent of the cache decides what is loaded from it. So every directory from the root down must belong to
the user or the system, and nobody else may write to it, as sshd's StrictModes requires for ``~/.ssh``. A sticky directory such
as ``/tmp`` is the exception: others can neither rename nor replace the user's own files there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import math
import os
import stat
from typing import TYPE_CHECKING

from .errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "NO_LOCKS", "Directory", "digest_of_regular", "is_trusted_like", "read_regular", "remove", "try_to_remove",
]  # fmt: skip

NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}
"""The errors of a file system that has no locks."""

_logger = logging.getLogger(__name__)
_MOST_BYTES = 1 << 30
_PART_BYTES = 1 << 16
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a fifo must not block
_FIX = "set ANYACCEL_CACHE_DIR to a directory that you own, and whose parents only you or root can change"


class Directory:
    """A directory of the user's own; its files are reached through its descriptor, not through its path.

    Args:
        path: the directory; links in the path are followed once, and the directory they lead to is checked.
        is_shared: the directory may be root's, as in a container image, and is only read.

    Raises:
        CacheError: when another user owns it or a parent, or may write to one of them.
        OSError: when it does not exist or cannot be opened.
    """

    def __init__(self, path: Path, *, is_shared: bool = False) -> None:
        self.path = path
        self._real = os.path.realpath(path)
        self._is_shared = is_shared
        _check_chain(self._real, is_shared)
        self._descriptor = os.open(self._real, _OPEN_DIRECTORY)
        opened = os.fstat(self._descriptor)
        self._identity = opened.st_dev, opened.st_ino
        if self._identity != _identity(self._real):
            os.close(self._descriptor)
            msg = (
                f"opening the cache failed: {path} was replaced by another directory while it was opened. Fix: {_FIX}."
            )
            raise CacheError(msg)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._descriptor)

    def is_current(self) -> bool:
        """Return whether the path still leads to this directory.

        Raises:
            CacheError: when another user may now change it.
        """
        try:
            found = os.stat(self.path)
            if (found.st_dev, found.st_ino) != self._identity:
                return False
            _check_chain(self._real, self._is_shared)  # first, so that nobody can change what is compared next
            return _identity(self._real) == self._identity
        except OSError:
            return False

    def names(self) -> list[str]:
        """Return the sorted names of everything in it."""
        return sorted(os.listdir(self._descriptor))

    def status(self, name: str) -> os.stat_result:
        """Return the status of an entry; for a link, the link's own."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def has_folder(self, name: str) -> bool:
        """Return whether an entry is a directory, not a link to one."""
        try:
            return stat.S_ISDIR(self.status(name).st_mode)
        except OSError:
            return False

    def read(self, name: str, folder: str = "") -> bytes:
        """Return the content of a regular file in it, or in one of its folders.

        Raises:
            OSError: when it is missing, a link, or not a regular file.
        """
        if not folder:
            return read_regular(name, self._descriptor)
        with self._opened(folder) as descriptor:
            return read_regular(name, descriptor)

    def digest(self, name: str, folder: str) -> str:
        """Return the SHA-256 of a regular file in one of its folders; raises like :meth:`read`."""
        with self._opened(folder) as descriptor:
            return digest_of_regular(name, descriptor)

    def write(self, name: str, content: bytes, folder: str = "") -> None:
        """Write a file with mode 0600, atomically replacing any file of that name; readers see the old or the new one."""
        with self._opened(folder) if folder else contextlib.nullcontext(self._descriptor) as descriptor:
            staged = f".{os.urandom(8).hex()}"
            file = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=descriptor)
            try:
                with os.fdopen(file, "wb") as opened:
                    opened.write(content)
                if _is_folder(name, descriptor):
                    remove(name, descriptor)
                os.replace(staged, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(staged, dir_fd=descriptor)
                raise

    def take(self, source: Path, name: str, folder: str) -> None:
        """Move a file from elsewhere on the same disk into one of its folders."""
        with self._opened(folder) as descriptor:
            if _is_folder(name, descriptor):
                remove(name, descriptor)
            os.replace(source, name, dst_dir_fd=descriptor)

    def make_folder(self, name: str) -> None:
        """Create a folder with mode 0700 if it does not exist; removes what else has that name, also a folder open to others."""
        try:
            with self._opened(name):
                pass
        except OSError:
            self.remove(name)
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self._descriptor)
                os.chmod(name, 0o700, dir_fd=self._descriptor)  # whatever the umask

    def names_in(self, folder: str) -> list[str]:
        """Return the sorted names of everything in one of its folders."""
        with self._opened(folder) as descriptor:
            return sorted(os.listdir(descriptor))

    def remove(self, name: str, folder: str = "") -> None:
        """Remove an entry, and a directory with its contents; links are removed, never followed."""
        if folder:
            with self._opened(folder) as descriptor:
                remove(name, descriptor)
        else:
            remove(name, self._descriptor)

    def require_writable(self) -> None:
        """Check that files can be created in it; a full disk shows only when something is built.

        Raises:
            OSError: when they cannot.
        """
        if not os.access(self.path, os.W_OK | os.X_OK):
            number = errno.EROFS if os.statvfs(self.path).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(number, os.strerror(number), os.fspath(self.path))

    @contextlib.contextmanager
    def _opened(self, folder: str) -> Iterator[int]:
        descriptor = os.open(folder, _OPEN_DIRECTORY, dir_fd=self._descriptor)
        try:
            status = os.fstat(descriptor)
            owners = {os.getuid(), *([0] if self._is_shared else [])}
            if _is_open_to_others(status) or status.st_uid not in owners:
                msg = f"it belongs to user {status.st_uid} with mode {stat.S_IMODE(status.st_mode):o}"
                raise PermissionError(1, msg, os.path.join(self.path, folder))
            yield descriptor
        finally:
            os.close(descriptor)


def read_regular(name: str | os.PathLike[str], directory: int | None = None) -> bytes:
    """Return the content of a regular file that only the user or root can change; refuses links, directories, fifos and devices.

    Raises:
        OSError: when it is missing, not a regular file, of another user, or open to others.
    """
    return b"".join(_parts_of(name, directory, follow_link=False))


def digest_of_regular(name: str | os.PathLike[str], directory: int | None = None, *, follow_link: bool = False) -> str:
    """Return the hexadecimal SHA-256 of a regular file of any size, which is read in small parts; see :func:`read_regular`.

    Args:
        name: the file.
        directory: the descriptor of the folder to which a relative name belongs.
        follow_link: read the file that a link names, too, and anybody's.
    """
    digest = hashlib.sha256()
    for part in _parts_of(name, directory, follow_link, math.inf):
        digest.update(part)
    return digest.hexdigest()


def _parts_of(
    name: str | os.PathLike[str], directory: int | None, follow_link: bool, most_bytes: float = _MOST_BYTES
) -> Iterator[bytes]:
    descriptor = os.open(name, _OPEN_FILE & ~os.O_NOFOLLOW if follow_link else _OPEN_FILE, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            raise OSError(22, "not a regular file of at most 1 GiB", os.fspath(name))
        if not follow_link and (_is_open_to_others(status) or status.st_uid not in (os.getuid(), 0)):
            msg = f"it belongs to user {status.st_uid} with mode {stat.S_IMODE(status.st_mode):o}"
            raise PermissionError(1, msg, os.fspath(name))
        while part := os.read(descriptor, _PART_BYTES):
            yield part
    finally:
        os.close(descriptor)


def remove(name: str, directory: int) -> None:
    """Remove an entry of an open directory, and a directory with its contents; links are not followed."""
    if not _is_folder(name, directory):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        return
    with contextlib.suppress(FileNotFoundError):
        os.chmod(name, 0o700, dir_fd=directory)  # without permissions, a folder cannot be read or removed
        below = os.open(name, _OPEN_DIRECTORY, dir_fd=directory)
        try:
            for inner in os.listdir(below):
                remove(inner, below)
        finally:
            os.close(below)
        os.rmdir(name, dir_fd=directory)


def try_to_remove(directory: Directory, name: str, folder: str = "") -> None:
    """Remove an entry, or leave it if that fails."""
    try:
        directory.remove(name, folder)
    except OSError as error:
        _logger.debug("%s stays in the cache: %s", name, error)


def _is_folder(name: str, directory: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _check_chain(path: str, is_shared: bool) -> None:
    """Check a directory, whose path has no links, and all of its parents.

    Raises:
        CacheError: naming the first directory that another user may change.
        OSError: when the status of a directory cannot be read.
    """
    system = {0, os.lstat("/").st_uid}  # in a user namespace, root may have another number
    user = os.getuid()
    end = 0
    while end < len(path):
        end = path.find("/", end + 1)
        end = len(path) if end < 0 else end
        place = path[:end]
        status = os.lstat(place)
        is_last = end == len(path)
        owners = {user} if is_last and not is_shared else {user, *system}
        is_open = _is_open_to_others(status) and (
            is_last or not (status.st_mode & stat.S_ISVTX or _is_open_to_own_group(place, status))
        )
        if status.st_uid in owners and not is_open:
            continue
        whose = f"user {user}" if is_last else f"user {user} or root"
        is_private = status.st_uid in owners and not status.st_mode & stat.S_ISVTX  # others need one like /tmp as it is
        can_be_made_private = is_private and stat.S_ISDIR(status.st_mode)  # /dev/null must stay as it is
        fix = f"chmod {'700' if is_last else 'go-w'} '{place}', or {_FIX}" if can_be_made_private else _FIX
        msg = (
            f"opening the cache failed: got {'' if is_last else 'the parent '}{place}, owned by user {status.st_uid} with "
            f"mode {stat.S_IMODE(status.st_mode):o}; expected a directory of {whose} that nobody else may write to. Fix: {fix}."
        )
        raise CacheError(msg)


def is_trusted_like(place: str, known: str) -> bool:
    """Return whether those who can change a known folder, or root, but nobody else, can have put something in a place."""
    try:
        of_known = os.stat(known)
        is_known_open = _is_open_to_others(of_known)
        owners = {os.getuid(), 0, of_known.st_uid}
    except OSError:  # it is of a program that was moved away, or comes from a terminal
        is_known_open, owners = False, {os.getuid(), 0}
    for path in (place, os.path.dirname(os.path.abspath(place))):
        status = os.stat(path)
        is_open = _is_open_to_others(status) and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in owners or (is_open and not is_known_open and not _is_open_to_own_group(path, status)):
            return False
    return True


def _is_open_to_others(status: os.stat_result) -> bool:
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _is_open_to_own_group(place: str, status: os.stat_result) -> bool:
    """Return whether only the owner and the user's own group may write, and the group has no other member.

    Many systems give each user such a group, and make directories group-writable.
    """
    try:
        import grp
        import pwd

        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(status.st_gid)
        is_own = status.st_gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
        is_own &= all(other.pw_gid != status.st_gid or other.pw_uid == user.pw_uid for other in pwd.getpwall())
    except (ImportError, KeyError):
        return False
    return is_own and not status.st_mode & stat.S_IWOTH and not _has_access_list(place)


def _has_access_list(place: str) -> bool:
    """Return whether an access list names further users; the mode shows their rights as the group's."""
    try:
        return bool(os.getxattr(place, "system.posix_acl_access"))
    except OSError:
        return False
