"""How a check says what is wrong."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...accelerator import DeepSpeedAccelerator

__all__ = ["ContractViolation", "expect", "expect_type", "last_index", "made_current"]


class ContractViolation(AssertionError):  # noqa: N818  # pytest shows the name; it is a failed assertion
    """A member does not do what the contract says."""


def expect(holds: bool, otherwise: str) -> None:
    """Raise ``ContractViolation`` with a text unless something holds."""
    if not holds:
        raise ContractViolation(otherwise)


def expect_type(value: Any, wanted: type | tuple[type, ...], what: str) -> None:
    """Raise ``ContractViolation`` unless a value has a type; a bool is no int here."""
    is_wanted = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    names = wanted.__name__ if isinstance(wanted, type) else " or ".join(kind.__name__ for kind in wanted)
    expect(is_wanted, f"{what} is {value!r}, of type {type(value).__name__}; expected {names}")


def last_index(accelerator: DeepSpeedAccelerator) -> int:
    """Return the last device's index, where a member that answers for device 0 is found.

    The current one where devices have no index, as a CPU's ranks, or where this process cannot use the last one.
    """
    current, last = accelerator.current_device(), accelerator.device_count() - 1
    name = accelerator.device_name(last)
    if torch.device(name).index is None or accelerator.device_name() == "cpu":
        return current
    try:
        torch.empty(1, device=name)
    except RuntimeError:
        return current
    return last


@contextlib.contextmanager
def made_current(accelerator: DeepSpeedAccelerator, index: int) -> Iterator[None]:
    """Make a device current inside a ``with`` block; deepspeed's own classes have no ``device_guard``."""
    previous = accelerator.current_device()
    if index != previous:
        accelerator.set_device(index)
    try:
        yield
    finally:
        if index != previous:
            accelerator.set_device(previous)
