"""A device named ``toy`` for PyTorch, and its accelerator for anyaccel: importing this registers the device with torch."""

from __future__ import annotations

from .device import ToyTensor, register

register()

from .accelerator import ToyAccelerator  # noqa: E402  # an accelerator needs its device registered

__all__ = ["ToyAccelerator", "ToyTensor"]
