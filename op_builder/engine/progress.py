"""Reports the progress of long work: to callbacks on every tick, otherwise in the log if the work takes long."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import BuildStoppedError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

__all__ = ["Progress", "Reporter", "Rhythm", "watch"]

_logger = logging.getLogger(__name__)
_FIRST_SAID_SECONDS = 5.0


@dataclass(frozen=True)
class Progress:
    """The state of a piece of work.

    Attributes:
        op: the op's name.
        doing: the kind of work, such as ``"building"``.
        note: why it is slow, if it is.
        elapsed_seconds: the time since it began.
        running: the longest-running process, such as ``"cc is process 123"``; empty if unknown.
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


class Rhythm:
    """Tells when a long wait is worth a line in the log: after five seconds, then each time that it has tripled."""

    def __init__(self) -> None:
        self._say_at_seconds = _FIRST_SAID_SECONDS

    def is_due(self, elapsed_seconds: float) -> bool:
        """Return whether to say something now.

        Args:
            elapsed_seconds: the time since the wait began.
        """
        if elapsed_seconds < self._say_at_seconds:
            return False
        self._say_at_seconds = 3 * elapsed_seconds
        return True


_watchers: list[Callable[[Progress], None]] = []


@contextlib.contextmanager
def watch(callback: Callable[[Progress], None]) -> Iterator[None]:
    """Call a function about twice per second with every piece of work in progress, instead of logging.

    What it raises is logged once, and does not end the work.
    """
    _watchers.append(callback)
    try:
        yield
    finally:
        _watchers.remove(callback)


class Reporter:
    """Reports one piece of work.

    Args:
        op: the op's name.
        doing: the kind of work, such as ``"building"``.
        note: why it is slow, if it is.
        stop: when it is set, the work must stop.
    """

    def __init__(self, op: str, doing: str, note: str = "", stop: threading.Event | None = None) -> None:
        self._work = (op, doing, note)
        self._stop = stop
        self._rhythm = Rhythm()
        self._failed: list[Callable[[Progress], None]] = []

    def tick(self, elapsed_seconds: float, running: str = "") -> None:
        """Report that the work is still in progress.

        Args:
            elapsed_seconds: the time since it began.
            running: the longest-running process.

        Raises:
            BuildStoppedError: when the work must stop.
        """
        if self._stop is not None and self._stop.is_set():
            op, doing, _ = self._work
            raise BuildStoppedError(op, f"{doing} the op", "the program that requested it")
        progress = Progress(*self._work, elapsed_seconds, running)
        for callback in list(_watchers):  # another thread may stop watching meanwhile
            try:
                callback(progress)
            except Exception:
                if callback not in self._failed:
                    self._failed.append(callback)
                    _logger.exception("a callback of watch() failed; the work goes on")
        if not _watchers and self._rhythm.is_due(elapsed_seconds):
            _logger.warning("%s", progress)
