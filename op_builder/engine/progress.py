"""How long work is seen: a program that watches gets every tick, others a line in the log when it takes long."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    """

    op: str
    doing: str
    note: str
    elapsed_seconds: float

    def __str__(self) -> str:
        return f"{self.doing} the op '{self.op}': {self.elapsed_seconds:.0f} s{self.note and f' ({self.note})'}"


_watchers: list[Callable[[Progress], None]] = []


@contextlib.contextmanager
def watch(callback: Callable[[Progress], None]) -> Iterator[None]:
    """Call a function about twice a second with every piece of work that is going on, in place of the log."""
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
    """

    def __init__(self, op: str, doing: str, note: str = "") -> None:
        self._work = (op, doing, note)
        self._say_at_seconds = _FIRST_SAID_SECONDS

    def tick(self, elapsed_seconds: float) -> None:
        """Say that it still goes on."""
        progress = Progress(*self._work, elapsed_seconds)
        for callback in list(_watchers):  # another thread may stop watching meanwhile
            callback(progress)
        if not _watchers and elapsed_seconds >= self._say_at_seconds:
            self._say_at_seconds = 3 * elapsed_seconds
            _logger.warning("%s", progress)
