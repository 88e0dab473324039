"""The builders for Intel GPUs.

Every builder for the device is an attribute, imported on first use.
"""

from __future__ import annotations

from ..all_ops import attributes
from .builder import SYCLOpBuilder

__all__ = ["SYCLOpBuilder"]

__getattr__ = attributes(__name__, "xpu")
