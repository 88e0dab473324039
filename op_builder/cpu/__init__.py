"""The builders of the CPU, which serve every accelerator whose host runs them.

Every builder that serves the device is an attribute, imported when it is asked for.
"""

from __future__ import annotations

from ..all_ops import attributes
from ..builder import CPUOpBuilder

__all__ = ["CPUOpBuilder"]

__getattr__ = attributes(__name__, "cpu")
