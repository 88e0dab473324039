"""The builders of the device by deepspeed's names, such as ``FusedLionBuilder``."""

from __future__ import annotations

from ..all_ops import attributes
from ..renamed import deepspeed_builders
from . import kernels

__getattr__ = attributes(__name__, deepspeed_builders(kernels).get)
