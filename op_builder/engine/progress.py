"""How long work is seen: a program that watches gets every tick, others a line in the log when it takes long."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import BuildStoppedError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

__all__ = ["Progress", "Reporter", "watch"]

_logger = logging.getLogger(__name__)
_FIRST_SAID_SECONDS = 5.0


@dataclass(frozen=True)
class Progress:
    """Where a piece of work stands.

    Attributes:
        op: the op's name.
        doing: what is being done, such as ``"building"``.
        note: what makes it slow, where that is known.
        elapsed_seconds: since it began.
        running: which process has been running longest, such as ``"cc is process 123"``; empty where none is known.
    """

    op: str
    doing: str
    note: str
    elapsed_seconds: float
    running: str = ""

    def __str__(self) -> str:
        remarks = "; ".join(
            filter(None, (self.note, self.running if self.elapsed_seconds >= _FIRST_SAID_SECONDS else ""))
        )
        return f"{self.doing} the op '{self.op}': {self.elapsed_seconds:.0f} s{remarks and f' ({remarks})'}"


_watchers: list[Callable[[Progress], None]] = []


@contextlib.contextmanager
def watch(callback: Callable[[Progress], None]) -> Iterator[None]:
    """Call a function about twice per second with every piece of work that is going on, in place of the log."""
    _watchers.append(callback)
    try:
        yield
    finally:
        _watchers.remove(callback)


class Reporter:
    """Reports one piece of work.

    Args:
        op: the op's name.
        doing: what is being done, such as ``"building"``.
        note: what makes it slow, where that is known.
        stop: once it is set, the work is to be given up.
    """

    def __init__(self, op: str, doing: str, note: str = "", stop: threading.Event | None = None) -> None:
        self._work = (op, doing, note)
        self._stop = stop
        self._say_at_seconds = _FIRST_SAID_SECONDS

    def tick(self, elapsed_seconds: float, running: str = "") -> None:
        """Say that it still goes on.

        Args:
            elapsed_seconds: since it began.
            running: which process has been running longest.

        Raises:
            BuildStoppedError: when the work is to be given up.
        """
        if self._stop is not None and self._stop.is_set():
            op, doing, _ = self._work
            raise BuildStoppedError(op, f"{doing} the op", "the program that asked for it")
        progress = Progress(*self._work, elapsed_seconds, running)
        for callback in list(_watchers):  # another thread may stop watching meanwhile
            callback(progress)
        if not _watchers and elapsed_seconds >= self._say_at_seconds:
            self._say_at_seconds = 3 * elapsed_seconds
            _logger.warning("%s", progress)
