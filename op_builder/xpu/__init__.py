"""The builders of Intel's GPUs.

Every builder that serves the device is an attribute, imported when it is asked for.
"""

from __future__ import annotations

from ..all_ops import attributes
from .builder import SYCLOpBuilder

__all__ = ["SYCLOpBuilder"]

__getattr__ = attributes(__name__, "xpu")
