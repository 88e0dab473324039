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
        """Return the normalised states times the weight, in the dtype of this product, as the stock layer does."""
        if hidden_states.dtype == self.weight.dtype:
            return rms_norm(hidden_states, self.weight, self.variance_epsilon)
        ones = torch.ones_like(self.weight, dtype=hidden_states.dtype)
        return self.weight * rms_norm(hidden_states, ones, self.variance_epsilon)
