"""The layers: each has the forward of a stock layer, whose weights it finds on the module that it is put into."""

from __future__ import annotations

import torch

from anyaccel.ops import rms_norm

__all__ = ["RMSNorm"]


class RMSNorm(torch.nn.Module):
    """The norm of Llama and its likes, which keep ``weight`` and ``variance_epsilon``."""

    can_torch_compile = True
    has_backward = True
    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the normalised states, of their own shape and dtype."""
        return rms_norm(hidden_states, self.weight, self.variance_epsilon)
