"""All exceptions that anyaccel defines, in one tree.

AnyaccelError
├── SelectionError (ValueError)            an explicit choice of accelerator cannot be served
├── EnvironmentVariableError (ValueError)  a variable such as LOCAL_RANK has an invalid value
├── NotAnAcceleratorError (TypeError)      set_accelerator was given something else
├── UnsupportedError (NotImplementedError) this device has no such feature
└── OpError (RuntimeError)                 anything about building or loading an op (op_builder/engine/errors.py)
"""

from __future__ import annotations

__all__ = ["AnyaccelError", "EnvironmentVariableError", "NotAnAcceleratorError", "SelectionError", "UnsupportedError"]


class AnyaccelError(Exception):
    """Base of every exception that anyaccel defines.

    Attributes:
        exit_code: the exit code of the command line.
    """

    exit_code = 1


class SelectionError(AnyaccelError, ValueError):
    """An accelerator was named explicitly and cannot be used here."""


class EnvironmentVariableError(AnyaccelError, ValueError):
    """An environment variable has an invalid value."""


class NotAnAcceleratorError(AnyaccelError, TypeError):
    """An object given as an accelerator lacks members of the contract."""


class UnsupportedError(AnyaccelError, NotImplementedError):
    """The device lacks a feature; the message names the query to ask first."""

    def __init__(self, member: str, device: str, lacks: str) -> None:
        self.member = member
        self.device = device
        self.lacks = lacks
        super().__init__(
            f"{member} failed: it is not supported on '{device}', which has no {lacks}. "
            f"Fix: ask get_accelerator().supports('{member}') first."
        )

    def __reduce__(self) -> tuple[type[UnsupportedError], tuple[str, str, str]]:
        return type(self), (self.member, self.device, self.lacks)
