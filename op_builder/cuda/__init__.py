"""The builders of NVIDIA's GPUs.

Every builder that serves the device is an attribute, imported when it is asked for.
"""

from __future__ import annotations

from typing import Any

from ..all_ops import builder_class
from .builder import CUDAOpBuilder

__all__ = ["CUDAOpBuilder"]


def __getattr__(name: str) -> Any:
    found = builder_class(name, "cuda")
    if found is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return found
