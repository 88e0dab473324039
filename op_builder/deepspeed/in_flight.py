"""The operations of a handle for files, from their start until they have been reported."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import threading
from typing import TYPE_CHECKING

from .transfers import error_of, size_of

if TYPE_CHECKING:
    from .transfers import Pending

__all__ = ["InFlight"]

_log = logging.getLogger(__name__)


class InFlight:
    """Starts operations, completes those that have ended, and reports each of them once.

    Any thread may call it, and so may the handler of a signal, between any two steps of a call. Whatever such a handler
    raises, what has begun keeps its files and its memory until it has ended, and the next :meth:`wait` completes it.
    """

    def __init__(self, library: ctypes.CDLL, pointer: ctypes.c_void_p) -> None:
        self._library, self._pointer = library, pointer
        self._guard = threading.RLock()  # a handler runs in a thread that may hold it
        self._pending: dict[int, Pending] = {}
        self._problems: list[Exception] = []
        self._ended = 0

    def start(self, one: Pending, direct: int, buffered: int) -> None:
        """Start an operation, which has its files; close them if it did not begin.

        Raises:
            AsyncIOError: when there is no memory for it.
        """
        key = id(one)
        try:
            with self._guard:
                self._pending[key] = one  # before it begins, as its memory and its files must outlive it
                if not self._library.anyaccel_aio_start(
                    self._pointer, ctypes.byref(one.outcome), int(one.is_read), direct, buffered,
                    ctypes.c_void_p(one.memory.data_ptr()), ctypes.c_int64(one.tensor.nbytes), ctypes.c_int64(one.offset),
                ):  # fmt: skip
                    raise error_of(errno.ENOMEM, one.path, one.is_read, one.offset, one.tensor.nbytes, 0)
        except BaseException:
            one.is_awaited = False
            if one.outcome.state == 0:
                self._pending.pop(key, None)
                one.close()
            raise

    def wait(self) -> int:
        """Wait for every operation; return the number of those that have ended and were not waited for by name.

        Raises:
            Exception: the first of their problems; the others are logged.
        """
        self._wait()
        with self._guard:
            ended, self._ended = self._ended, 0
            problems, self._problems = self._problems, []
        for other in problems[1:]:
            _log.error("another operation failed, too: %s", other)
        if problems:
            raise problems[0]
        return ended

    def wait_for(self, one: Pending) -> int:
        """Wait for every operation; return the number of those that have ended, this one among them.

        Raises:
            Exception: its problem. :meth:`wait` raises those of others.
        """
        try:
            self._wait()
        except BaseException:
            with self._guard:
                one.is_awaited = False
                if id(one) not in self._pending:
                    self._report(one)
            raise
        with self._guard:
            ended, self._ended = self._ended, 0
        if one.problem is not None:
            raise one.problem
        return ended + 1

    def drop(self) -> None:
        """Complete the operations that nobody waited for, which have ended, and log those that failed."""
        failed: list[Exception] = [*self._problems]
        for one in self._pending.values():
            one.close()
            try:
                one.complete()
            except Exception as problem:  # noqa: BLE001  # it can only be logged
                failed.append(problem)
        for error in failed:
            _log.error("an aio_handle was dropped before wait(), and an operation failed: %s", error)

    def size_in_turn(self, descriptor: int, start: int, end: int) -> int:
        """Return the size in bytes that a file will have at least when a read of some of its bytes begins.

        The read waits for those writes in flight that it overlaps, and for no others.
        """
        file = os.fstat(descriptor)
        with self._guard:
            writes = [one for one in self._pending.values() if not one.is_read and one.files]
            into = [one for one in writes if os.path.samestat(os.fstat(one.files[0]), file)]
        ends = [one.offset + one.tensor.nbytes for one in into if one.offset < end]
        return max([size_of(descriptor), *(one for one in ends if one > start)])  # a write may just have ended

    def release_files(self) -> None:
        """Wait for every operation, and close their files; :meth:`wait` still completes and reports them."""
        self._library.anyaccel_aio_wait(self._pointer)
        with self._guard:
            for one in self._pending.values():
                if self._library.anyaccel_aio_has_ended(ctypes.byref(one.outcome)):
                    one.close()

    def close_files(self) -> None:
        """Close the files in a forked child, which has its own descriptors of them."""
        for one in self._pending.values():
            one.close()

    def _wait(self) -> None:
        self._library.anyaccel_aio_wait(self._pointer)
        with self._guard:
            for key, one in list(self._pending.items()):
                if self._library.anyaccel_aio_has_ended(ctypes.byref(one.outcome)):
                    one.close()
                    try:
                        one.complete()
                    except Exception as problem:  # noqa: BLE001  # the others are still to be completed
                        one.problem = problem
                    if self._pending.pop(key, None) is not None and not one.is_awaited:
                        self._report(one)

    def _report(self, one: Pending) -> None:
        self._ended += 1
        if one.problem is not None:
            self._problems.append(one.problem)
