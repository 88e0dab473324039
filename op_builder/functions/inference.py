"""The inference modules of deepspeed 0.19.8 and Colossal-AI, by their function names and arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .activations import Activations
    from .layer_norm import LayerNorm
    from .rms_norm import RMSNorm
    from .rotary_embedding import RotaryEmbedding

__all__ = ["InferenceCore", "InferenceOps"]

_GELU, _RELU, _SILU, _GEGLU, _REGLU, _SIGLU, _IDENTITY = range(7)


class InferenceCore:
    """deepspeed's module ``inference_core_ops``, but for its matrix products."""

    def __init__(self, rms_norm: RMSNorm, layer_norm: LayerNorm, activations: Activations) -> None:
        self._rms_norm, self._layer_norm, self._activations = rms_norm, layer_norm, activations

    def rms_norm(self, norm_output: torch.Tensor, norm_input: torch.Tensor, gamma: torch.Tensor, eps: float) -> None:
        """Write the normalised input to ``norm_output``."""
        norm_output.copy_(self._rms_norm.rms_norm(norm_input, gamma, eps))

    def rms_pre_norm(
        self, norm_output: torch.Tensor, residual_output: torch.Tensor, norm_input: torch.Tensor,
        residual_input: torch.Tensor, gamma: torch.Tensor, eps: float,
    ) -> None:  # fmt: skip
        """Write the normalised sum of input and residual, and the sum."""
        normalised, total = self._rms_norm.add_rms_norm(norm_input, residual_input, gamma, eps)
        norm_output.copy_(normalised)
        residual_output.copy_(total)

    def layer_norm(
        self, output: torch.Tensor, norm_input: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float
    ) -> None:
        """Write the normalised input to ``output``."""
        output.copy_(self._layer_norm.layer_norm(norm_input, gamma, beta, eps))

    def pre_layer_norm(
        self, res_output: torch.Tensor, norm_output: torch.Tensor, norm_input: torch.Tensor, residual: torch.Tensor,
        gamma: torch.Tensor, beta: torch.Tensor, eps: float,
    ) -> None:  # fmt: skip
        """Write the sum of input and residual, and the normalised sum."""
        normalised, total = self._layer_norm.add_layer_norm(norm_input, residual, gamma, beta, eps)
        norm_output.copy_(normalised)
        res_output.copy_(total)

    def post_layer_norm(
        self, output: torch.Tensor, norm_input: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor,
        beta: torch.Tensor, eps: float,
    ) -> None:  # fmt: skip
        """Write the normalised sum of input and residual."""
        output.copy_(self._layer_norm.add_layer_norm(norm_input, residual, gamma, beta, eps)[0])

    def bias_activation(self, activation: torch.Tensor, bias: torch.Tensor | None, act_type: int) -> None:
        """Apply an activation to ``activation + bias``, in place: 0 GELU by tanh, 1 ReLU, 2 SiLU, 6 none."""
        if act_type == _GELU:
            given = activation.new_zeros(activation.shape[-1]) if bias is None else bias
            activation.copy_(self._activations.bias_gelu(activation, given))
            return
        if act_type not in (_RELU, _SILU, _IDENTITY):
            raise _unknown("bias_activation", act_type, [_GELU, _RELU, _SILU, _IDENTITY])
        if bias is not None:
            activation.add_(bias)
        if act_type == _RELU:
            activation.relu_()
        elif act_type == _SILU:
            torch.nn.functional.silu(activation, inplace=True)

    def gated_activation(
        self, output: torch.Tensor, activation: torch.Tensor, bias: torch.Tensor | None, act_type: int
    ) -> None:
        """Write ``act(even channels) * odd channels``: 3 GEGLU by tanh, 4 ReGLU, 5 SiGLU."""
        given = activation if bias is None else activation + bias
        gate, up = given[..., ::2].contiguous(), given[..., 1::2].contiguous()
        if act_type == _GEGLU:
            output.copy_(self._activations.geglu(gate, up, "tanh"))
        elif act_type == _SIGLU:
            output.copy_(self._activations.swiglu(gate, up))
        elif act_type == _REGLU:
            output.copy_(gate.relu_() * up)  # out= would resize an output of another shape, over what lies behind it
        else:
            raise _unknown("gated_activation", act_type, [_GEGLU, _REGLU, _SIGLU])


class InferenceOps:
    """Colossal-AI's module of inference kernels, but for its paged caches and its attention."""

    def __init__(self, rms_norm: RMSNorm, activations: Activations, rotary_embedding: RotaryEmbedding) -> None:
        self._rms_norm, self._activations, self._rotary = rms_norm, activations, rotary_embedding

    def silu_and_mul(self, ins: torch.Tensor) -> torch.Tensor:
        """Return ``silu(first half) * second half`` of the first dimension; a result of one entry loses it."""
        gate, up = ins.chunk(2, 0)
        y = self._activations.swiglu(gate, up)
        return y.squeeze(0) if y.shape[0] == 1 else y

    def rms_layernorm(self, out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> None:
        """Write the normalised x to ``out``."""
        out.copy_(self._rms_norm.rms_norm(x, weight, epsilon))

    def fused_add_rms_layernorm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> None:
        """Add x to ``residual``, in place, and write the normalised sum to ``x``."""
        normalised, total = self._rms_norm.add_rms_norm(x, residual, weight, epsilon)
        x.copy_(normalised)
        residual.copy_(total)

    def rotary_embedding(
        self, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, high_precision: bool = False
    ) -> None:
        """Turn ``(tokens, heads, head_dim)`` by each token's angles, in place; always computed in float32."""
        pairs = query.shape[-1] // 2
        for tensor in (query, key):
            self._rotary.rotary_embedding(tensor[None], cos[:, :pairs], sin[:, :pairs], inplace=True)


def _unknown(function: str, act_type: int, known: list[int]) -> NotImplementedError:
    return NotImplementedError(
        f"{function} failed: got activation {act_type}; expected one of {sorted(known)}. Fix: choose another."
    )
