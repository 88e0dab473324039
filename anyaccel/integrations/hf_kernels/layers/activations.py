"""Gated activations: each layer has the forward method of a stock layer."""

from __future__ import annotations

import torch

from .functions import geglu, swiglu

__all__ = ["GeluAndMul", "GeluTanhAndMul", "SiluAndMul"]


class SiluAndMul(torch.nn.Module):
    """SwiGLU: the first half of the last dimension through SiLU, times the second."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        """Return a tensor whose last dimension is half as long as the input's."""
        gate, up = input.chunk(2, -1)
        return swiglu(gate, up)


class GeluAndMul(torch.nn.Module):
    """GeGLU: the first half of the last dimension through GELU, times the second."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        """Return a tensor whose last dimension is half as long as the input's."""
        gate, up = input.chunk(2, -1)
        return geglu(gate, up)


class GeluTanhAndMul(torch.nn.Module):
    """GeGLU by GELU's approximation with tanh."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        """Return a tensor whose last dimension is half as long as the input's."""
        gate, up = input.chunk(2, -1)
        return geglu(gate, up, "tanh")
