"""A device named ``toy`` for PyTorch, and its accelerator for anyaccel; importing this package registers the device."""

from __future__ import annotations

from .device import ToyTensor, register

register()

from .accelerator import ToyAccelerator  # noqa: E402  # the device must be registered first

__all__ = ["ToyAccelerator", "ToyTensor"]
