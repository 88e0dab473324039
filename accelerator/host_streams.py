"""Streams and events of the CPU, which runs work immediately and in order: they do nothing, but events measure time."""

from __future__ import annotations

import threading
import time
from typing import Any

__all__ = [
    "CurrentStream",
    "Event",
    "HostStreams",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
]


class Stream:
    """A CPU stream: work on it is finished when its call returns.

    Args:
        device: ignored; there is one CPU.
        priority: stored, and otherwise ignored.
    """

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        self.priority = priority

    def query(self) -> bool:
        """Return True: all work on the stream is done."""
        return True

    def synchronize(self) -> None:
        """Return at once: all work on the stream is done."""

    def wait_stream(self, stream: Any) -> None:
        """Return at once: all work on the other stream is done."""

    def wait_event(self, event: Any) -> None:
        """Return at once: the event has happened."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event now, a new one if none is given, and return it."""
        recorded = Event() if event is None else event
        recorded.record(self)
        return recorded

    def __enter__(self) -> Stream:
        _current.outer.append(_current.stream)
        _choose(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _choose(_current.outer.pop())


class Event:
    """A moment on the CPU.

    Args:
        enable_timing: keep the time when it is recorded, for :meth:`elapsed_time`.
        blocking: ignored, as are ``interprocess`` and the options of other devices' events.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **options: Any
    ) -> None:
        self._enable_timing = enable_timing
        self._recorded_ns: int | None = None

    def record(self, stream: Any = None) -> None:
        """Mark this moment."""
        self._recorded_ns = time.perf_counter_ns()

    def query(self) -> bool:
        """Return True: all work before the event is done."""
        return True

    def wait(self, stream: Any = None) -> None:
        """Return at once: the event has happened."""

    def synchronize(self) -> None:
        """Return at once: the event has happened."""

    def elapsed_time(self, end_event: Event) -> float:
        """Return the time from this event to another, in milliseconds.

        Raises:
            RuntimeError: when one of them was made without ``enable_timing`` or was not recorded.
        """
        if not (self._enable_timing and end_event._enable_timing):
            msg = "elapsed_time failed: one of the events does not measure time. Fix: make both with Event(enable_timing=True)."
            raise RuntimeError(msg)
        if self._recorded_ns is None or end_event._recorded_ns is None:
            msg = "elapsed_time failed: one of the events was not recorded. Fix: call record() on both."
            raise RuntimeError(msg)
        return (end_event._recorded_ns - self._recorded_ns) / 1e6


_DEFAULT = Stream()


class CurrentStream(threading.local):
    """The stream that is current in each thread, and those around it.

    Args:
        default: the stream that is current unless another was set.
    """

    def __init__(self, default: Any) -> None:
        self.stream = default
        self.outer: list[Any] = []


_current = CurrentStream(_DEFAULT)
_is_ever_chosen = False  # all threads use the default until one sets a stream: a thread-local doubles a call's cost


def current_stream() -> Stream:
    """Return the stream that is current in this thread."""
    return _current.stream if _is_ever_chosen else _DEFAULT


def default_stream() -> Stream:
    """Return the stream that is current unless another was set."""
    return _DEFAULT


def set_stream(stream: Stream | None) -> None:
    """Make a stream current in this thread; None changes nothing."""
    if stream is not None:
        _choose(stream)


def _choose(stream: Stream) -> None:
    global _is_ever_chosen
    _current.stream = stream
    _is_ever_chosen = True


class StreamContext:
    """Makes a stream current inside a ``with`` block; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self._outer = current_stream()
        set_stream(self.stream)

    def __exit__(self, *exception: object) -> None:
        if self.stream is not None:
            set_stream(self._outer)


class HostStreams:
    """The stream members of an accelerator that uses these classes."""

    def stream(self, stream: Any) -> StreamContext:
        """Make a stream current inside a ``with`` block; None changes nothing."""
        return StreamContext(stream)

    def current_stream(self, device_index: int | None = None) -> Stream:  # inlined: programs call it in loops
        """Return the current stream of this thread; the index is ignored, as there is one host."""
        return _current.stream if _is_ever_chosen else _DEFAULT

    def default_stream(self, device_index: int | None = None) -> Stream:
        """Return the stream that is current unless another was set."""
        return _DEFAULT

    def set_stream(self, stream: Any) -> None:
        """Make a stream current in this thread; None changes nothing."""
        set_stream(stream)
