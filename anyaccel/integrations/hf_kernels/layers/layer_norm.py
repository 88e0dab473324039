"""Layer normalisation: the layer has the forward method of a stock layer, and uses its weights."""

from __future__ import annotations

import torch

from .functions import layer_norm

__all__ = ["LayerNorm"]


class LayerNorm(torch.nn.Module):
    """``torch.nn.LayerNorm``; without a weight or a bias, or with one of another dtype, torch's own function computes it."""

    can_torch_compile = True
    has_backward = True
    normalized_shape: tuple[int, ...]
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    eps: float

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's own name
        """Return the normalised input, of its own shape and dtype."""
        weight, bias, dims = self.weight, self.bias, len(self.normalized_shape)
        is_right = tuple(input.shape[-dims:]) == tuple(self.normalized_shape)  # otherwise torch says what is wrong
        if weight is None or bias is None or not is_right or not input.dtype == weight.dtype == bias.dtype:
            return torch.nn.functional.layer_norm(input, self.normalized_shape, weight, bias, self.eps)
        if dims == 1:
            return layer_norm(input, weight, bias, self.eps)
        return layer_norm(input.flatten(-dims), weight.flatten(), bias.flatten(), self.eps).view(input.shape)
