"""The layers: each has the forward method of a stock layer, and uses the weights of the module that it is put into."""

from __future__ import annotations

import torch

from anyaccel.ops import geglu, layer_norm, rms_norm, swiglu

__all__ = ["GeluAndMul", "GeluTanhAndMul", "LayerNorm", "RMSNorm", "SiluAndMul"]


class RMSNorm(torch.nn.Module):
    """The norm of Llama and similar models, which have ``weight`` and ``variance_epsilon``."""

    can_torch_compile = True
    has_backward = True
    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the normalised states, with the same shape and dtype."""
        return rms_norm(hidden_states, self.weight, self.variance_epsilon)


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
