"""Colossal-AI's inference module, by its function names and arguments, on this project's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.functions.outputs import write_output

if TYPE_CHECKING:
    import torch

    from ...kernels.functions.activations import ActivationFunctions
    from ...kernels.functions.normalization import RMSNormFunctions
    from ...kernels.functions.rotary_embedding import RotaryEmbeddingFunctions

__all__ = ["InferenceOps"]


class InferenceOps:
    """Colossal-AI's module of inference kernels, but for its paged caches and its attention."""

    def __init__(
        self, rms_norm: RMSNormFunctions, activations: ActivationFunctions, rotary_embedding: RotaryEmbeddingFunctions
    ) -> None:
        self._rms_norm, self._activations, self._rotary = rms_norm, activations, rotary_embedding

    def silu_and_mul(self, ins: torch.Tensor) -> torch.Tensor:
        """Return ``silu(first half) * second half`` of the first dimension; a result of one entry loses it."""
        gate, up = ins.chunk(2, 0)
        y = self._activations.swiglu(gate, up)
        return y.squeeze(0) if y.shape[0] == 1 else y

    def rms_layernorm(self, out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> None:
        """Write the normalised x to ``out``."""
        write_output("rms_layernorm", out, self._rms_norm.rms_norm(x, weight, epsilon))

    def fused_add_rms_layernorm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> None:
        """Add x to ``residual``, in place, and write the normalised sum to ``x``."""
        normalised, total = self._rms_norm.add_rms_norm(x, residual, weight, epsilon)
        write_output("fused_add_rms_layernorm", x, normalised)
        write_output("fused_add_rms_layernorm", residual, total)

    def rotary_embedding(
        self, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, high_precision: bool = False
    ) -> None:
        """Turn ``(tokens, heads, head_dim)`` by each token's angles, in place; always computed in float32."""
        pairs = query.shape[-1] // 2
        for tensor in (query, key):
            self._rotary.rotary_embedding(tensor[None], cos[:, :pairs], sin[:, :pairs], inplace=True)
