"""The builders of NVIDIA's GPUs.

Every builder that serves the device is an attribute, imported when it is asked for.
"""

from __future__ import annotations

from ..all_ops import attributes
from .builder import CUDAOpBuilder

__all__ = ["CUDAOpBuilder"]

__getattr__ = attributes(__name__, "cuda")
