"""RMS normalisation: the layer has the forward method of a stock layer, and uses its weights."""

from __future__ import annotations

import torch

from .functions import rms_norm

__all__ = ["RMSNorm"]


class RMSNorm(torch.nn.Module):
    """The norm of Llama and similar models, which have ``weight`` and ``variance_epsilon``."""

    can_torch_compile = True
    has_backward = True
    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the normalised states, with the same shape and dtype."""
        return rms_norm(hidden_states, self.weight, self.variance_epsilon)
