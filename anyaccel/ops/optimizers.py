"""The multi-tensor optimizers in the style of ``torch.optim``: one call per step for any number of parameters."""

from __future__ import annotations

from .fused_optimizers import FusedAdam, FusedLamb, FusedLion, FusedSGD
from .host_optimizers import CPUAdagrad, CPULion

__all__ = ["CPUAdagrad", "CPULion", "FusedAdam", "FusedLamb", "FusedLion", "FusedSGD"]
