"""``RMSNorm`` and ``LayerNorm`` as modules, in the manner of ``torch.nn``."""

from __future__ import annotations

import torch

from . import functional

__all__ = ["LayerNorm", "RMSNorm"]


class _Norm(torch.nn.Module):
    """What the two share: a size, an epsilon, a weight of ones."""

    def __init__(
        self, size: int, eps: float, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.size = size
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(size, device=device, dtype=dtype))

    def extra_repr(self) -> str:
        return f"{self.size}, eps={self.eps}"


class RMSNorm(_Norm):
    """Root-mean-square normalisation over the last dimension, with an optional residual added in the same pass.

    Args:
        size: of the last dimension.
        eps: added to the mean square.
        device: of the weight.
        dtype: of the weight; float32 goes with inputs of every dtype.

    Source: Zhang & Sennrich, arXiv:1910.07467; tests/ops/rms_norm_reference.py
    """

    def __init__(
        self, size: int, eps: float = 1e-6, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(size, eps, device, dtype)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Return the normalised x; with a residual the normalised sum, and the sum."""
        if residual is None:
            return functional.rms_norm(x, self.weight, self.eps)
        return functional.add_rms_norm(x, residual, self.weight, self.eps)


class LayerNorm(_Norm):
    """Layer normalisation over the last dimension, with an optional residual added in the same pass.

    Args:
        size: of the last dimension.
        eps: added to the variance.
        device: of weight and bias.
        dtype: of weight and bias; float32 goes with inputs of every dtype.

    Source: Ba et al., arXiv:1607.06450; tests/ops/layer_norm_reference.py
    """

    def __init__(
        self, size: int, eps: float = 1e-5, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(size, eps, device, dtype)
        self.bias = torch.nn.Parameter(torch.zeros(size, device=device, dtype=dtype))

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Return the normalised x; with a residual the normalised sum, and the sum."""
        if residual is None:
            return functional.layer_norm(x, self.weight, self.bias, self.eps)
        return functional.add_layer_norm(x, residual, self.weight, self.bias, self.eps)
