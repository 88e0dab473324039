"""The kernels as functions, each by the implementation that is the best for this machine.

They take and return tensors on whatever device they are, carry gradients where that makes sense, and compile into one graph
with ``torch.compile``. What each takes is documented at the functions that its loader returns; see docs/ops.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from .loading import loaded
from .sharded import are_sharded, norm_of, shards

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..op_builder.functions.moe import Routing

__all__ = [
    "add_layer_norm", "add_rms_norm", "bias_gelu", "clip_grad_norm_", "combine", "dequantize", "dequantize_float8",
    "dispatch", "geglu", "layer_norm", "quantize", "quantize_float8", "rms_norm", "rotary_embedding", "route",
    "scaled_masked_softmax", "scaled_upper_triang_masked_softmax", "swiglu", "topk_gating",
]  # fmt: skip


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Return ``x / sqrt(mean(x ** 2) + eps) * weight``, over the last dimension; see :class:`RMSNorm`."""
    y: torch.Tensor = loaded("RMSNormLoader").rms_norm(x, weight, eps)
    return y


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``rms_norm(x + residual, weight, eps)``, and the sum."""
    y, total = loaded("RMSNormLoader").add_rms_norm(x, residual, weight, eps)
    return y, total


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """Return ``(x - mean) / sqrt(variance + eps) * weight + bias``, over the last dimension; see :class:`LayerNorm`."""
    y: torch.Tensor = loaded("LayerNormLoader").layer_norm(x, weight, bias, eps)
    return y


def add_layer_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``layer_norm(x + residual, weight, bias, eps)``, and the sum."""
    y, total = loaded("LayerNormLoader").add_layer_norm(x, residual, weight, bias, eps)
    return y, total


def scaled_masked_softmax(x: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 1.0) -> torch.Tensor:
    """Return ``softmax(scale * x)`` over the last dimension, 0 where the mask is True, and in rows that it hides."""
    y: torch.Tensor = loaded("ScaledMaskedSoftmaxLoader").scaled_masked_softmax(x, mask, scale)
    return y


def scaled_upper_triang_masked_softmax(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Return ``softmax(scale * x)`` over the last dimension, 0 right of the diagonal, which ends in the last column."""
    loader = loaded("ScaledUpperTriangleMaskedSoftmaxLoader")
    y: torch.Tensor = loader.scaled_upper_triang_masked_softmax(x, scale)
    return y


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return ``silu(gate) * up``; halves of one tensor are read where they lie."""
    y: torch.Tensor = loaded("ActivationsLoader").swiglu(gate, up)
    return y


def geglu(gate: torch.Tensor, up: torch.Tensor, approximate: Literal["none", "tanh"] = "none") -> torch.Tensor:
    """Return ``gelu(gate) * up``."""
    y: torch.Tensor = loaded("ActivationsLoader").geglu(gate, up, approximate)
    return y


def bias_gelu(x: torch.Tensor, bias: torch.Tensor, approximate: Literal["none", "tanh"] = "tanh") -> torch.Tensor:
    """Return ``gelu(x + bias)``."""
    y: torch.Tensor = loaded("ActivationsLoader").bias_gelu(x, bias, approximate)
    return y


def rotary_embedding(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, interleaved: bool = False, inplace: bool = False
) -> torch.Tensor:
    """Turn pairs of ``x``, ``(batch, positions, heads, head_dim)``, by angles, given as ``(positions, pairs)``."""
    rotary = loaded("RotaryEmbeddingLoader")
    y: torch.Tensor = rotary.rotary_embedding(x, cos, sin, interleaved=interleaved, inplace=inplace)
    return y


def quantize(
    x: torch.Tensor, groups: int, bits: int = 8, *, symmetric: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return integers of 8 or 4 bits, int8, and each group's scale, or scale and offset."""
    q, params = loaded("QuantizationLoader").quantize(x, groups, bits, symmetric=symmetric)
    return q, params


def dequantize(
    q: torch.Tensor, params: torch.Tensor, bits: int = 8, *, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Undo :func:`quantize`."""
    x: torch.Tensor = loaded("QuantizationLoader").dequantize(q, params, bits, dtype=dtype)
    return x


def quantize_float8(
    x: torch.Tensor, groups: int, dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return 8-bit floats, and each group's scale."""
    q, scales = loaded("QuantizationLoader").quantize_float8(x, groups, dtype)
    return q, scales


def dequantize_float8(q: torch.Tensor, scales: torch.Tensor, *, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Undo :func:`quantize_float8`."""
    x: torch.Tensor = loaded("QuantizationLoader").dequantize_float8(q, scales, dtype=dtype)
    return x


def topk_gating(
    logits: torch.Tensor, k: int, *, normalise: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return each token's k largest probabilities, their experts, and all probabilities."""
    weights, taken, probabilities = loaded("MoeLoader").topk_gating(logits, k, normalise=normalise)
    return weights, taken, probabilities


def route(taken: torch.Tensor, experts: int) -> Routing:
    """Order the choices ``(tokens, k)`` by expert."""
    routing: Routing = loaded("MoeLoader").route(taken, experts)
    return routing


def dispatch(x: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Copy tokens into the order of experts."""
    rows: torch.Tensor = loaded("MoeLoader").dispatch(x, routing)
    return rows


def combine(rows: torch.Tensor, weights: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Add up each token's rows by their weights."""
    y: torch.Tensor = loaded("MoeLoader").combine(rows, weights, routing)
    return y


@torch.no_grad()
def clip_grad_norm_(parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float) -> torch.Tensor:
    """Scale gradients down to a norm, in place, without waiting for the device.

    Args:
        parameters: those without a gradient are passed over; all on one device, ordinary ones or ``DTensor``.
        max_norm: the largest norm of all gradients together.

    Returns:
        The norm that they had, float32 ``(1,)``; where it is not finite, gradients become NaN as with torch's function.

    Source: ``torch.nn.utils.clip_grad_norm_``
    """
    given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    grads = [parameter.grad for parameter in given if parameter.grad is not None]
    if not grads:
        return torch.zeros(1)
    op = loaded("MultiTensorLoader")
    norm: torch.Tensor
    if are_sharded(grads):
        norm, grads = norm_of(grads, op.l2norm), shards(grads)
    else:
        norm = op.l2norm(grads)[0]
    op.scale(grads, grads, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
