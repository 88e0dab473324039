"""Runs the contract's checks on an accelerator and returns each result."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .checks import CHECKS

if TYPE_CHECKING:
    from ..accelerator import DeepSpeedAccelerator

__all__ = ["Outcome", "Result", "run_check", "run_checks"]


_TOOLS = ("Stream", "stream")
"""Members with which others are checked."""


class Outcome(enum.Enum):
    """The outcome of a member's check; the last two are found by ``check_members`` only."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    WRONG = "wrong"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"


@dataclass(frozen=True)
class Result:
    """The result of one member's check.

    Attributes:
        member: the member's name.
        outcome: how it fared; ``UNSUPPORTED`` means that it refuses as the contract asks.
        why: what was wrong, or what the refusal said.
        is_checked: whether the member itself was checked: a check may need another member, which refuses.
    """

    member: str
    outcome: Outcome
    why: str = ""
    is_checked: bool = True


def run_check(accelerator: DeepSpeedAccelerator, member: str) -> Result:
    """Run one member's check.

    Args:
        accelerator: the accelerator, whose device is available.
        member: a key of ``anyaccel.testing.checks.CHECKS``.

    Returns:
        How the member fared, and what was wrong.
    """
    try:
        CHECKS[member](accelerator)
    except NotImplementedError as error:
        said = str(error)
        if accelerator.device_name() not in said:
            return Result(member, Outcome.WRONG, f"raises without naming the device: {said!r}")
        missing = getattr(error, "member", member)
        if missing in _TOOLS and missing != member:
            why = f"not checked, as the check needs {missing}: {said}"
            return Result(member, Outcome.UNSUPPORTED, why, is_checked=False)
        if _is_said_to_work(accelerator, member):
            return Result(member, Outcome.WRONG, f"supports({member!r}) is True, but it raises: {said}")
        return Result(member, Outcome.UNSUPPORTED, said)
    except Exception as error:  # noqa: BLE001  # any exception is a finding
        return Result(member, Outcome.WRONG, f"{type(error).__name__}: {error}")
    if _is_said_to_work(accelerator, member) is False:
        return Result(member, Outcome.WRONG, f"supports({member!r}) is False, but it works")
    return Result(member, Outcome.OK)


def _is_said_to_work(accelerator: DeepSpeedAccelerator, member: str) -> bool | None:
    supports = getattr(accelerator, "supports", None)  # deepspeed's own classes have none
    return None if supports is None or member.startswith("_") else bool(supports(member))


def run_checks(accelerator: DeepSpeedAccelerator) -> list[Result]:
    """Run every check of the contract, in its order.

    Args:
        accelerator: the accelerator, whose device is available.

    Returns:
        How each member fared.
    """
    return [run_check(accelerator, member) for member in CHECKS]
