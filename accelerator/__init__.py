"""The contract, ``DeepSpeedAccelerator``, and its implementations."""

from __future__ import annotations

if __name__ != "anyaccel.accelerator":
    msg = f"importing '{__name__}' failed: got a bare import; expected the full name. Fix: import anyaccel.accelerator."
    raise ImportError(msg)

from .abstract_accelerator import DeepSpeedAccelerator
from .real_accelerator import get_accelerator, set_accelerator, use_accelerator

__all__ = ["DeepSpeedAccelerator", "get_accelerator", "set_accelerator", "use_accelerator"]
