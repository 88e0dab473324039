"""The builders of the CPU, which serve every accelerator whose host runs them.

Every builder that serves the device is an attribute, imported when it is asked for.
"""

from __future__ import annotations

from typing import Any

from ..all_ops import builder_class
from .builder import CPUOpBuilder

__all__ = ["CPUOpBuilder"]


def __getattr__(name: str) -> Any:
    found = builder_class(name, "cpu")
    if found is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return found
