"""The builders of AMD's GPUs, where torch is built for ROCm.

Every builder that serves the device is an attribute, imported when it is asked for.
"""

from __future__ import annotations

from ..all_ops import attributes

__all__: list[str] = []

__getattr__ = attributes(__name__, "hip")
