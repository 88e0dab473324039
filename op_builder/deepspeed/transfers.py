"""A read or write of a tensor: its memory, its files, and its error."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import stat
import struct
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

from ...kernels.functions.outputs import may_share_memory

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AsyncIOError",
    "OperationOutcome",
    "Pending",
    "also_named",
    "error_of",
    "memory_of",
    "opened",
    "require_memory",
    "size_of",
]

P = ParamSpec("P")
T = TypeVar("T")
_SIZE_OF_DEVICE = 0x80081272  # BLKGETSIZE64 of linux/fs.h
_DIRECT: int = getattr(os, "O_DIRECT", 0)


class AsyncIOError(OSError):
    """A read or write did not transfer all of its bytes.

    Attributes:
        offset: the position in the file where it failed.
        asked: the size of the tensor in bytes.
        moved: the number of bytes that were transferred, at any position.
    """

    def __init__(self, code: int, message: str, path: str, offset: int, asked: int, moved: int) -> None:
        super().__init__(code, message, path)
        self.offset, self.asked, self.moved = offset, asked, moved

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all of the arguments: a pool of processes passes a worker's error on."""
        return type(self), (*self.args, self.filename, self.offset, self.asked, self.moved)


class OperationOutcome(ctypes.Structure):
    """How an operation went, as ``csrc/async_io/handle.h`` has it."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("state", "has_failed", "error", "offset", "moved"))
    state: int
    has_failed: int
    error: int
    offset: int
    moved: int


@dataclass(eq=False)
class Pending:
    """An operation: what it needs until it has ended, and how it went.

    Attributes:
        folder: where the path begins, if the file is to be compared and the path is relative.
        is_awaited: whether a call waits for it, and will report it.
        problem: why it failed, once it is completed.
    """

    tensor: torch.Tensor
    memory: torch.Tensor
    path: str
    is_read: bool
    offset: int
    is_checked: bool
    is_awaited: bool = False
    problem: Exception | None = None
    files: list[int] = field(default_factory=list)
    outcome: OperationOutcome = field(default_factory=OperationOutcome)
    folder: str = ""

    def close(self) -> None:
        """Close the files."""
        while self.files:
            os.close(self.files.pop())

    def error(self) -> AsyncIOError:
        """Return the error of an operation that has failed."""
        told = self.outcome
        return error_of(told.error, self.path, self.is_read, told.offset, self.tensor.nbytes, told.moved)

    def complete(self) -> None:
        """Copy what was read to the tensor that asked for it, and compare the file with the memory if that was requested.

        Raises:
            AsyncIOError: when the operation failed, or the file has other bytes.
        """
        if self.outcome.has_failed:
            raise self.error()
        if self.is_read and self.memory is not self.tensor:
            self.tensor.copy_(self.memory.view(self.tensor.dtype).view(self.tensor.shape))
        if self.is_checked and not _is_in_file(self):
            size = self.memory.nbytes
            fix = "call wait() before another operation writes these bytes, and check the disk and its file system"
            raise error_of(0, self.path, self.is_read, self.offset, size, size, "different bytes in the file", fix)


def also_named(theirs: str, ours: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function accept deepspeed's name of an argument, which is a word of Python's or misspelt."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            if theirs in options:
                options[ours] = options.pop(theirs)
            return function(*arguments, **options)

        return call

    return decorate


def require_memory(tensor: Any, is_read: bool) -> None:
    """Refuse what has no bytes to transfer, and for reads, elements that share memory.

    Raises:
        TypeError: when it is not a tensor.
        ValueError: when it is a tensor without memory of its own for each element.
    """
    if not isinstance(tensor, torch.Tensor):
        msg = (
            f"starting a transfer failed: got {type(tensor).__name__}; expected a tensor. "
            f"Fix: pass torch.from_numpy(array) for an array."
        )
        raise TypeError(msg)
    if tensor.is_nested:
        kind = "that is nested"
    elif tensor.is_meta or tensor.layout != torch.strided:
        kind = "on the device meta" if tensor.is_meta else f"of layout {tensor.layout}"
    elif tensor.is_quantized:
        kind = f"of the quantized dtype {tensor.dtype}"
    elif is_read and may_share_memory(tensor):
        kind = "whose elements share memory, as expand() and unfold() make"
    elif tensor.numel() and tensor.device.type == "cpu" and _lacks_memory(tensor):
        kind = "without memory"
    else:
        return
    msg = (
        f"starting a transfer failed: got a tensor {kind}; expected one with memory for each element. "
        f"Fix: pass torch.empty(tensor.shape, dtype=tensor.dtype) to read into; to_dense() or dequantize() it to write."
    )
    raise ValueError(msg)


def _lacks_memory(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's storage has no memory, or ends before the tensor's last byte."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    end = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return tensor.data_ptr() == 0 or tensor.untyped_storage().nbytes() < end


def memory_of(tensor: torch.Tensor, is_read: bool) -> torch.Tensor:
    """Return a contiguous tensor in host memory: the tensor itself, or a new one for its bytes."""
    if tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj():
        return tensor
    if is_read:
        return torch.empty(tensor.nbytes, dtype=torch.uint8, device="cpu")
    return tensor.cpu().contiguous().resolve_neg().resolve_conj()


def opened(file: str | int, is_read: bool, files: list[int]) -> tuple[int, int]:
    """Return descriptors of a file opened with and without O_DIRECT, the first -1 if unsupported; add both to ``files``.

    An open file's descriptor is duplicated, as the process may not be allowed to open the file again; one with flags that
    change where or how it writes is opened again.
    """
    flags = (os.O_RDONLY if is_read else os.O_WRONLY | os.O_CREAT) | os.O_CLOEXEC
    path = f"/proc/self/fd/{file}" if isinstance(file, int) else os.fspath(file)
    _require_places(file)
    given = _require_usable(file, is_read) if isinstance(file, int) else 0
    flags |= given & os.O_SYNC  # O_DSYNC is a part of it
    if isinstance(file, int) and not given & (_DIRECT | os.O_APPEND):
        files.append(os.dup(file))
    else:
        files.append(os.open(path, flags, 0o600))
    try:
        if _DIRECT:
            files.append(os.open(path, flags | _DIRECT, 0o600))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return -1, files[0]  # the file system does not support it
    if not _DIRECT or not os.path.samestat(*map(os.stat, files)):  # another file has taken the name
        return -1, files[0]
    return files[1], files[0]


def size_of(descriptor: int) -> int:
    """Return a file's size in bytes, a block device's by its driver; other devices have no end, and the largest number."""
    file = os.fstat(descriptor)
    if stat.S_ISBLK(file.st_mode):
        size: int = struct.unpack("=Q", fcntl.ioctl(descriptor, _SIZE_OF_DEVICE, bytes(8)))[0]
        return size
    return sys.maxsize if stat.S_ISCHR(file.st_mode) else file.st_size


def _require_places(file: str | int) -> None:
    """Refuse a pipe or a socket, whose bytes have no places; opening one may wait for its other end. Refuse a folder."""
    try:
        mode = os.stat(file).st_mode
    except OSError:
        return  # a new file, or one that cannot be opened either
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        msg = (
            f"starting a transfer failed: got {file!r}, a pipe or a socket; expected a file. "
            f"Fix: read or write it with Python's functions."
        )
        raise OSError(errno.ESPIPE, msg)
    if stat.S_ISDIR(mode):
        msg = (
            f"starting a transfer failed: got {file!r}, a folder; expected a file. Fix: pass the path of a file in it."
        )
        raise IsADirectoryError(errno.EISDIR, msg)


def _require_usable(descriptor: int, is_read: bool) -> int:
    """Return the flags of a descriptor; refuse a closed one and one for the other direction, which opening again would hide."""
    refused = os.O_WRONLY if is_read else os.O_RDONLY
    with contextlib.suppress(OSError):
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        if flags & os.O_ACCMODE != refused and not flags & os.O_PATH:
            return flags
    what, other, flag = ("reading", "writing", "RDONLY") if is_read else ("writing", "reading", "WRONLY")
    msg = (
        f"{what} failed: got descriptor {descriptor}, which is closed or for {other} only; expected one of a file that is "
        f"open for {what}. Fix: open it with os.O_{flag}, and close it after wait()."
    )
    raise OSError(errno.EBADF, msg)


def _is_in_file(one: Pending) -> bool:
    """Return whether the file contains the bytes that were read from it or written to it."""
    if one.memory.numel() == 0:
        return True
    mine = one.memory.flatten().view(torch.uint8)
    with open(os.path.join(one.folder, one.path), "rb") as file:
        file.seek(one.offset)
        for piece in mine.split(1 << 24):
            found = file.read(piece.numel())
            if len(found) != piece.numel() or not torch.equal(
                torch.frombuffer(bytearray(found), dtype=torch.uint8), piece
            ):
                return False
    return True


_FIXES = {
    errno.ENOSPC: "free space on the disk",
    errno.EFBIG: "raise the limit of a file's size",
    0: "read no more bytes than the file has",
}


def error_of(
    code: int, path: str, is_read: bool, offset: int, asked: int, moved: int, found: str = "", fix: str = ""
) -> AsyncIOError:
    """Return the error of an operation.

    Args:
        code: the errno; 0 when the file ended, or ``found`` describes the problem.
        path: the file's path.
        is_read: whether it was read.
        offset: the position in the file where it failed.
        asked: the size of the tensor in bytes.
        moved: the number of bytes that were transferred.
        found: a text to use instead of the code's.
        fix: what to do about that.
    """
    what = found or (os.strerror(code) if code else "end of file")
    fix = fix or _FIXES.get(code, "check the disk and its file system")
    message = (
        f"{'reading' if is_read else 'writing'} {asked} bytes failed: got {what} at byte {offset} of the file, after {moved} "
        f"bytes; expected to move all of them. Fix: {fix}."
    )
    return AsyncIOError(code or errno.ENODATA, message, path, offset, asked, moved)
