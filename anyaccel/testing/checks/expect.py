"""How a check says what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...accelerator import DeepSpeedAccelerator

__all__ = ["ContractViolation", "expect", "expect_type", "last_index"]


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
    """Return the last device's index, where a member that answers for device 0 is found; a CPU's ranks share one device."""
    return accelerator.device_count() - 1 if accelerator.device_name() != "cpu" else accelerator.current_device()
