"""How a check says what is wrong."""

from __future__ import annotations

from typing import Any

__all__ = ["ContractViolation", "expect", "expect_type"]


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
