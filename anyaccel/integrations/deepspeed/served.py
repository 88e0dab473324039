"""Whose op deepspeed uses, and why: each op and function is recorded, and logged once, when it is first used."""

from __future__ import annotations

import logging
from typing import NamedTuple

__all__ = ["ServedOp", "note", "served_ops"]

_logger = logging.getLogger(__name__)


class ServedOp(NamedTuple):
    """An op, or one function of an op, that deepspeed has loaded.

    Args:
        builder: the builder's class, such as ``"CPUAdamBuilder"``.
        function: the function's name; empty for the whole op.
        source: ``"anyaccel"`` or ``"deepspeed"``.
        reason: why it is not anyaccel's; empty if it is.
    """

    builder: str
    function: str
    source: str
    reason: str

    def __str__(self) -> str:
        what = f"{self.function} of {self.builder} uses" if self.function else f"{self.builder} loads"
        whose = "anyaccel's" if self.source == "anyaccel" else "deepspeed's own"
        return f"{what} {whose} {'function' if self.function else 'op'}{self.reason and ', as ' + self.reason}"


_served: dict[ServedOp, None] = {}


def served_ops() -> list[ServedOp]:
    """Return the ops that deepspeed has loaded in this process so far, in order, with their source.

    An op of anyaccel's is followed by those of its functions that came from deepspeed instead.

    Returns:
        One entry per op, and one per function and reason.

    Example:
        >>> from anyaccel.integrations.deepspeed import served_ops
        >>> served_ops()
        []
    """
    return list(_served)


def note(builder: type, function: str = "", reason: str = "", level: int = logging.INFO) -> None:
    """Record and log an op or function that deepspeed's code is about to use, unless that was done before.

    Args:
        builder: the builder's class.
        function: the function's name; empty for the whole op.
        reason: why it is deepspeed's own, as a clause; empty if it is anyaccel's.
        level: the level to log at.
    """
    served = ServedOp(builder.__name__, function, "deepspeed" if reason else "anyaccel", reason)
    if served not in _served:
        _served[served] = None
        _logger.log(level, "%s", served)
