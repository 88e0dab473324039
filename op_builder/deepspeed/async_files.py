"""deepspeed 0.19.8's module for asynchronous file reads and writes, with its function names and arguments."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import weakref
from operator import index
from typing import TYPE_CHECKING, ClassVar, Literal

from ...kernels.functions.outputs import is_same_place, require_apart, require_writable
from ...kernels.functions.process_bound import ProcessBound
from ...kernels.functions.registration import mark_changed
from ..arguments import require_like
from .host_memory import PinMemoryModule
from .in_flight import InFlight
from .transfers import (
    AsyncIOError,
    OperationOutcome,
    Pending,
    also_named,
    error_of,
    memory_of,
    opened,
    require_memory,
    size_of,
)

if TYPE_CHECKING:
    import torch

__all__ = ["AsyncIOError", "AsyncIOHandle", "AsyncIOModule"]

Backend = Literal["best", "io_uring", "kernel_aio", "threads"]
_BACKENDS: tuple[Backend, ...] = ("best", "io_uring", "kernel_aio", "threads")
_ALIGNMENT = 512  # deepspeed's callers round sizes to this, times the number of threads


class AsyncIOHandle(ProcessBound):
    """Reads files to tensors and writes tensors to files in the background, several at once.

    Each operation is split into blocks, and threads keep many of them in flight: with the kernel's io_uring; if it is missing
    or not allowed, with the kernel's older AIO, which libaio uses; otherwise with a system call for each block. File-aligned
    parts bypass the page cache (O_DIRECT) if the file system supports that; the rest goes through it. Tensors may have any
    device, layout and alignment; tensors from :meth:`new_cpu_locked_tensor` are not copied on the way. Operations that move the
    same bytes of a file take effect in the order of their calls. A tensor that is not contiguous, or not in host memory, has
    what was read when :meth:`wait` returns. A file that is validated is compared as :meth:`wait` finds it. Do not change a
    tensor, or free or resize its memory, before :meth:`wait` has returned: contiguous tensors are read and written where they
    are.

    Args:
        block_size: the size of a block in bytes; rounded up to 4096.
        queue_depth: the number of blocks that a thread keeps in flight, up to 32 MiB in total.
        single_submit: ignored.
        overlap_events: ignored; blocks always overlap.
        intra_op_parallelism: the number of threads.
        backend: ``"io_uring"``, ``"kernel_aio"`` or ``"threads"``, or ``"best"`` for the first that works here.

    Raises:
        ValueError: when a number is not positive, or the backend has another name.
        NotImplementedError: when the kernel does not offer the requested backend.
    """

    INSTEAD = "make an aio_handle in each process; threads of one process can share it"

    _library: ClassVar[ctypes.CDLL]  # from csrc/async_io

    def __init__(
        self, block_size: int = 1 << 20, queue_depth: int = 128, single_submit: bool = False, overlap_events: bool = False,
        intra_op_parallelism: int = 1, *, backend: Backend = "best",
    ) -> None:  # fmt: skip
        library = self._library
        block_size, queue_depth, intra_op_parallelism = map(index, (block_size, queue_depth, intra_op_parallelism))
        numbers = {"block_size": block_size, "queue_depth": queue_depth, "intra_op_parallelism": intra_op_parallelism}
        most = {"block_size": 1 << 40, "queue_depth": 1 << 15, "intra_op_parallelism": 1 << 10}
        for name, number in numbers.items():
            if not 1 <= number <= most[name]:
                msg = (
                    f"making an aio_handle failed: got {name}={number}; expected 1 to {most[name]}. "
                    f"Fix: leave {name} out for its default."
                )
                raise ValueError(msg)
        if backend not in _BACKENDS:
            msg = (
                f"making an aio_handle failed: got backend={backend!r}; expected one of {_BACKENDS}. Fix: leave it out."
            )
            raise ValueError(msg)
        pointer = library.anyaccel_aio_open(
            ctypes.c_int64(block_size), queue_depth, intra_op_parallelism, _BACKENDS.index(backend)
        )
        if not pointer:
            msg = (
                f"making an aio_handle failed: the system cannot start {intra_op_parallelism} threads. "
                f"Fix: pass a lower intra_op_parallelism, or raise the limit (ulimit -u)."
            )
            raise RuntimeError(msg)
        self._pointer, self._numbers = ctypes.c_void_p(pointer), numbers
        self._flags = bool(single_submit), bool(overlap_events)
        self._process, self._in_flight = os.getpid(), InFlight(library, self._pointer)
        self._pins = PinMemoryModule().pin_handle()
        self._close = weakref.finalize(self, _close, library, self._pointer, self._process, self._in_flight)
        self.backend = _BACKENDS[library.anyaccel_aio_backend(self._pointer)]
        if backend not in ("best", self.backend):
            self._close()
            msg = (
                f"making an aio_handle failed: this kernel does not offer {backend} to {intra_op_parallelism} threads. "
                f"Fix: pass backend='best'."
            )
            raise NotImplementedError(msg)

    def get_block_size(self) -> int:
        """Return the size of a block in bytes, as given."""
        return self._numbers["block_size"]

    def get_queue_depth(self) -> int:
        """Return the number of blocks that a thread keeps in flight at most, as given."""
        return self._numbers["queue_depth"]

    def get_single_submit(self) -> bool:
        """Return ``single_submit`` as given."""
        return self._flags[0]

    def get_overlap_events(self) -> bool:
        """Return ``overlap_events`` as given."""
        return self._flags[1]

    def get_intra_op_parallelism(self) -> int:
        """Return the number of threads."""
        return self._numbers["intra_op_parallelism"]

    def get_alignment(self) -> int:
        """Return the alignment that deepspeed's callers round sizes to; any size is supported."""
        return _ALIGNMENT * self.get_intra_op_parallelism()

    def read(self, buffer: torch.Tensor, filename: str, validate: bool, file_offset: int = 0) -> int:
        """Read a whole file, with what writes in flight will have written; return 0."""
        with open(filename, "rb") as file:
            size = self._in_flight.size_in_turn(file.fileno(), 0, sys.maxsize)
        if size - file_offset != buffer.nbytes:
            found = f"the file has {size} bytes, {file_offset} of them skipped"
            fix = f"pass a buffer of {max(size - file_offset, 0)} bytes, or call pread for a part of the file"
            raise error_of(0, filename, True, file_offset, buffer.nbytes, 0, found, fix)
        self.pread(buffer, filename, validate, False, file_offset)
        return 0

    def write(self, buffer: torch.Tensor, filename: str, validate: bool, file_offset: int = 0) -> int:
        """Write a tensor; return 0."""
        self.pwrite(buffer, filename, validate, False, file_offset)
        return 0

    @also_named("async", "is_async")
    def pread(self, buffer: torch.Tensor, filename: str, validate: bool, is_async: bool, file_offset: int = 0) -> int:
        """Read; see :meth:`async_pread` and :meth:`sync_pread`. With ``validate``, :meth:`wait` compares the file."""
        return self._move(buffer, filename, True, file_offset, validate, is_async)

    @also_named("async", "is_async")
    def pwrite(self, buffer: torch.Tensor, filename: str, validate: bool, is_async: bool, file_offset: int = 0) -> int:
        """Write; see :meth:`async_pwrite` and :meth:`sync_pwrite`. With ``validate``, :meth:`wait` compares the file."""
        return self._move(buffer, filename, False, file_offset, validate, is_async)

    def sync_pread(self, buffer: torch.Tensor, filename: str, file_offset: int = 0) -> int:
        """Read, and wait for all operations in flight; return their number. :meth:`wait` raises the errors of the others."""
        return self.pread(buffer, filename, False, False, file_offset)

    def sync_pwrite(self, buffer: torch.Tensor, filename: str, file_offset: int = 0) -> int:
        """Write, and wait for all operations in flight; return their number. :meth:`wait` raises the errors of the others."""
        return self.pwrite(buffer, filename, False, False, file_offset)

    def async_pread(self, buffer: torch.Tensor, filename: str, file_offset: int = 0) -> int:
        """Start a read.

        Args:
            buffer: the tensor to read into; its bytes in contiguous order.
            filename: the file.
            file_offset: the start in the file, in bytes.

        Returns:
            0.

        Raises:
            AsyncIOError: when the file is too short.
            OSError: when it cannot be opened.
        """
        return self.pread(buffer, filename, False, True, file_offset)

    def async_pwrite(
        self, buffer: torch.Tensor, filename: str | int | None = None, file_offset: int = 0, *, fd: int | None = None
    ) -> int:
        """Start a write; only its owner can read a new file, as with deepspeed, and a longer file keeps its end.

        Args:
            buffer: the tensor to write; its bytes in contiguous order.
            filename: the file, or an open file descriptor.
            file_offset: the start in the file, in bytes.
            fd: the descriptor, under deepspeed's keyword.

        Returns:
            0.

        Raises:
            OSError: when the file cannot be opened.
            TypeError: unless exactly one of ``filename`` and ``fd`` is given.
        """
        file = fd if filename is None else filename
        if file is None or (filename is not None and fd is not None):
            msg = (
                f"async_pwrite failed: got filename={filename!r} and fd={fd!r}; expected exactly one of them. "
                f"Fix: pass either the path or an open file's descriptor."
            )
            raise TypeError(msg)
        return self._move(buffer, file, False, file_offset, False, True)

    def wait(self) -> int:
        """Wait for all operations in flight.

        Returns:
            The number of operations that have ended since the last call, without those of other threads' blocking calls.

        Raises:
            AsyncIOError: when an operation failed; the others have ended too, and further failures are logged.
        """
        self._require_open()
        return self._in_flight.wait()

    @also_named("example_tenosr", "example_tensor")
    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: torch.Tensor) -> torch.Tensor:
        """Return a page-aligned tensor in locked memory, which is read and written without copies."""
        return self._pins.new_cpu_locked_tensor(num_elem, example_tensor)

    def free_cpu_locked_tensor(self, tensor: torch.Tensor) -> bool:
        """Unlock the memory of a tensor from :meth:`new_cpu_locked_tensor`; return whether it was locked."""
        return self._pins.free_cpu_locked_tensor(tensor)

    def is_pinned(self, buffer: torch.Tensor) -> bool:
        """Return whether torch has pinned a tensor's memory, or :meth:`new_cpu_locked_tensor` has locked it."""
        return self._pins.is_pinned(buffer)

    def _move(
        self, tensor: torch.Tensor, file: str | int, is_read: bool, offset: int, is_checked: bool, is_async: bool
    ) -> int:
        self._require_open()
        require_memory(tensor, is_read)
        offset, size = index(offset), tensor.nbytes
        if not 0 <= offset < (1 << 63) - size:
            msg = (
                f"starting a transfer failed: got file_offset={offset}; expected 0 or more, and an end below 2**63. "
                f"Fix: pass the offset in bytes from the file's beginning."
            )
            raise ValueError(msg)
        if isinstance(file, bool) or not isinstance(file, int | str | bytes | os.PathLike):
            msg = f"starting a transfer failed: got {file!r} as a file; expected a path, or an open descriptor. Fix: pass a path."
            raise TypeError(msg)
        if is_checked and isinstance(file, int):
            msg = (
                f"starting a transfer failed: got validate=True for descriptor {file}; expected the path of a file, which is "
                f"opened again to compare it. Fix: pass the path, or validate=False."
            )
            raise ValueError(msg)
        path = f"descriptor {file}" if isinstance(file, int) else os.fsdecode(file)
        plain = tensor.detach()
        one = Pending(plain, memory_of(plain, is_read), path, is_read, offset, is_checked, is_awaited=not is_async)
        one.folder = os.getcwd() if is_checked and not os.path.isabs(path) else ""  # it may be gone
        try:
            direct, buffered = self._opened(file, one)
            found, end = size_of(buffered), offset + size
            if is_read and found < end and self._in_flight.size_in_turn(buffered, offset, end) < end:
                raise error_of(0, path, is_read, found, size, 0)
        except BaseException:
            one.close()
            raise
        if is_read:
            mark_changed([tensor])
        self._in_flight.start(one, direct, buffered)
        return 0 if is_async else self._in_flight.wait_for(one)

    def _opened(self, file: str | int, one: Pending) -> tuple[int, int]:
        """Open an operation's file; where the process has no descriptor left, first wait for those of other operations."""
        try:
            return opened(file, one.is_read, one.files)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
        one.close()
        self._in_flight.release_files()
        return opened(file, one.is_read, one.files)

    def _require_open(self) -> None:
        if os.getpid() != self._process:
            msg = (
                f"using an aio_handle failed: process {self._process} created it, and a forked process does not have its "
                f"threads. Fix: create another aio_handle in this process."
            )
            raise RuntimeError(msg)
        if not self._close.alive:
            msg = (
                "using an aio_handle failed: Python has closed it, as it does when a program ends. "
                "Fix: finish transfers before the program's last functions (atexit) run."
            )
            raise RuntimeError(msg)


class AsyncIOModule(ProcessBound):
    """The module ``async_io``."""

    aio_handle = AsyncIOHandle

    def __init__(self, library: ctypes.CDLL) -> None:
        library.anyaccel_aio_open.restype = ctypes.c_void_p
        library.anyaccel_aio_has_ended.argtypes = (ctypes.POINTER(OperationOutcome),)

        class Handle(AsyncIOHandle):
            _library = library

        Handle.__name__ = "aio_handle"
        self.aio_handle = Handle

    def aio_read(
        self, buffer: torch.Tensor, filename: str, block_size: int, queue_depth: int, single_submit: bool,
        overlap_events: bool, validate: bool,
    ) -> int:  # fmt: skip
        """Read a whole file; return 0."""
        return self.aio_handle(block_size, queue_depth, single_submit, overlap_events).read(buffer, filename, validate)

    def aio_write(
        self, buffer: torch.Tensor, filename: str, block_size: int, queue_depth: int, single_submit: bool,
        overlap_events: bool, validate: bool,
    ) -> int:  # fmt: skip
        """Write a tensor to a file; return 0."""
        return self.aio_handle(block_size, queue_depth, single_submit, overlap_events).write(buffer, filename, validate)

    def deepspeed_memcpy(self, dest: torch.Tensor, src: torch.Tensor) -> int:
        """Copy a tensor to another of its shape and dtype; return 0."""
        require_like("deepspeed_memcpy", tuple(dest.shape), dest.dtype, src=src)
        require_writable("deepspeed_memcpy", dest, src)
        require_apart("deepspeed_memcpy", [dest] if is_same_place(dest, src) else [dest, src])
        dest.copy_(src)
        return 0


def _close(library: ctypes.CDLL, pointer: ctypes.c_void_p, process: int, in_flight: InFlight) -> None:
    """Wait for operations in flight, and end the threads; a forked child has none."""
    if os.getpid() != process:
        in_flight.close_files()
        return
    library.anyaccel_aio_close(pointer)
    in_flight.drop()
