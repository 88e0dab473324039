"""Streams of Apple's GPU for a torch without them (before 2.15): all work runs in order on one queue, which every stream is."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from .host_streams import CurrentStream

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import ModuleType

__all__ = ["MpsEvent", "MpsStream", "stream_members"]


class MpsEvent:
    """A moment on the queue: ``torch.mps.event.Event``, with the parameters of other devices' events.

    Args:
        enable_timing: measure time, for :meth:`elapsed_time`.
        blocking: ignored.
        interprocess: must be False.

    Raises:
        ValueError: when another process is to wait for it.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        import torch

        if interprocess:
            msg = (
                "making an event failed: got interprocess=True; expected False, as 'mps' has no events that processes share. "
                "Fix: call synchronize() before the other process is told."
            )
            raise ValueError(msg)
        self._event = torch.mps.event.Event(enable_timing)

    def record(self, stream: Any = None) -> None:
        """Mark this moment of the queue."""
        self._event.record()

    def wait(self, stream: Any = None) -> None:
        """Let later work wait for this moment."""
        self._event.wait()

    def query(self) -> bool:
        """Return whether all work before it is done."""
        return bool(self._event.query())

    def synchronize(self) -> None:
        """Wait until all work before it is done."""
        self._event.synchronize()

    def elapsed_time(self, end_event: MpsEvent) -> float:
        """Return the time from this event to another, in milliseconds."""
        return float(self._event.elapsed_time(end_event._event))


class MpsStream:
    """The queue. Work on two streams runs in the order in which it was given to them, as if each waited for the other.

    Args:
        device: ignored; there is one device.
        priority: stored, and otherwise ignored.
    """

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        self.priority = priority

    def query(self) -> bool:
        """Return whether all work on the queue is done."""
        return self.record_event().query()

    def synchronize(self) -> None:
        """Wait until all work on the queue is done."""
        import torch

        torch.mps.synchronize()

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: what was given to the other stream runs first."""

    def wait_event(self, event: Any) -> None:
        """Let later work wait for an event."""
        event.wait()

    def record_event(self, event: MpsEvent | None = None) -> MpsEvent:
        """Record an event now, a new one if none is given, and return it."""
        recorded = MpsEvent() if event is None else event
        recorded.record()
        return recorded

    def __enter__(self) -> MpsStream:
        _current.outer.append(_current.stream)
        _current.stream = self
        return self

    def __exit__(self, *exception: object) -> None:
        _current.stream = _current.outer.pop()


_DEFAULT = MpsStream()
_current = CurrentStream(_DEFAULT)


def _entered(stream: MpsStream | None) -> AbstractContextManager[Any]:
    """Make a stream current in a ``with`` block; None changes nothing."""
    return contextlib.nullcontext() if stream is None else stream


def _set(stream: MpsStream | None) -> None:
    """Make a stream current in this thread; None changes nothing."""
    if stream is not None:
        _current.stream = stream


def stream_members(module: ModuleType) -> dict[str, Any]:
    """Return the stream members that ``torch.mps`` lacks; none if it has streams."""
    if hasattr(module, "Stream"):
        return {}
    return {
        "Stream": MpsStream,
        "Event": MpsEvent,
        "stream": _entered,
        "set_stream": _set,
        "current_stream": lambda _device=None: _current.stream,
        "default_stream": lambda _device=None: _DEFAULT,
    }
