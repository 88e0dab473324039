"""The CPU builders, which also serve every accelerator whose ops run on the host.

Every builder for the device is an attribute, imported on first use.
"""

from __future__ import annotations

from ..all_ops import attributes
from ..builder import CPUOpBuilder

__all__ = ["CPUOpBuilder"]

__getattr__ = attributes(__name__, "cpu")
