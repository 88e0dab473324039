"""Matrix products of torch in the arguments' own dtypes."""

from __future__ import annotations

import contextlib

import torch

__all__ = ["without_autocast"]


def without_autocast(beside: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Return a context in which torch's operators keep their arguments' dtypes on a tensor's device, as kernels do."""
    kind = beside.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return contextlib.nullcontext()
