"""Layer normalisation: the layer has the forward method of a stock layer, and uses its weights."""

from __future__ import annotations

import torch

from .functions import layer_norm

__all__ = ["LayerNorm"]


class LayerNorm(torch.nn.Module):
    """``torch.nn.LayerNorm`` over the last dimension, with a weight and a bias."""

    can_torch_compile = True
    has_backward = True
    weight: torch.Tensor
    bias: torch.Tensor
    eps: float

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's own name
        """Return the normalised input, of its own shape and dtype."""
        return layer_norm(input, self.weight, self.bias, self.eps)
