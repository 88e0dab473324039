"""The builders of Intel's GPUs.

Every builder that serves the device is an attribute, imported when it is asked for.
"""

from __future__ import annotations

from typing import Any

from ..all_ops import builder_class
from .builder import SYCLOpBuilder

__all__ = ["SYCLOpBuilder"]


def __getattr__(name: str) -> Any:
    found = builder_class(name, "xpu")
    if found is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return found
