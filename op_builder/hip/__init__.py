"""The builders for AMD GPUs, for ROCm builds of torch.

Every builder for the device is an attribute, imported on first use.
"""

from __future__ import annotations

from ..all_ops import attributes

__all__: list[str] = []

__getattr__ = attributes(__name__, "hip")
