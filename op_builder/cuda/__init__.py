"""The builders for NVIDIA GPUs.

Every builder for the device is an attribute, imported on first use.
"""

from __future__ import annotations

from ..all_ops import attributes
from .builder import CUDAOpBuilder

__all__ = ["CUDAOpBuilder"]

__getattr__ = attributes(__name__, "cuda")
