"""Finds the accelerator that a command line names."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ..accelerator.errors import AnyaccelError

if TYPE_CHECKING:
    from ..accelerator import DeepSpeedAccelerator

__all__ = ["TargetError", "accelerator_of"]


class TargetError(AnyaccelError, ValueError):
    """A name leads to no accelerator that can be checked on this machine."""

    exit_code = 2


def accelerator_of(target: str) -> DeepSpeedAccelerator:
    """Create an accelerator.

    Args:
        target: ``package.module:Class``; a function that returns an accelerator also serves.

    Returns:
        The accelerator, whose device is available.

    Raises:
        TargetError: when the name is malformed, when creating the accelerator fails, or when its device is not available.
    """
    accelerator = _created(target)
    try:
        supports = getattr(accelerator, "supports", lambda _member: True)  # deepspeed's own classes have none
        required = [member for member in ("is_available", "device_count") if not supports(member)]
        is_available = not required and accelerator.is_available()
        name = accelerator.device_name()
    except Exception as error:
        msg = (
            f"checking '{target}' failed: asking for its device's name and whether it is available raised "
            f"{type(error).__name__}: {error}. "
            "Fix: name a class that derives from DeepSpeedAccelerator, and return False where its driver is missing."
        )
        raise TargetError(msg) from error
    if required:
        msg = (
            f"checking '{target}' failed: '{name}' does not support {' and '.join(required)}, which torch "
            "and every check need. Fix: define them in the module that torch._register_device_module gets, or in the class."
        )
        raise TargetError(msg)
    if not is_available:
        msg = (
            f"checking '{target}' failed: its device is not available on this machine. Fix: name an accelerator class whose "
            "device this machine has; `anyaccel report` lists them."
        )
        raise TargetError(msg)
    return accelerator


def _created(target: str) -> DeepSpeedAccelerator:
    module, separator, name = target.partition(":")
    if not separator:
        msg = (
            f"finding the accelerator failed: got {target!r}; expected package.module:Class. Fix: name an accelerator class, "
            "such as anyaccel:CPU_Accelerator."
        )
        raise TargetError(msg)
    try:
        accelerator: DeepSpeedAccelerator = getattr(importlib.import_module(module), name)()
    except (Exception, SystemExit) as error:  # a vendor's module may do anything
        msg = (
            f"creating the accelerator '{target}' failed: {type(error).__name__}: {error}. "
            "Fix: name an accelerator class that this Python can import and create without arguments."
        )
        raise TargetError(msg) from error
    return accelerator
