"""The functions of the op ``layer_norm``."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from .registration import empty_contiguous, ops_of, register, row_statistics

__all__ = ["LayerNorm"]


class LayerNorm:
    """Layer normalisation over the last dimension.

    Args:
        namespace: of the torch ops to call.
    """

    def __init__(self, namespace: str) -> None:
        ops = ops_of(namespace)
        register(
            f"{namespace}::layer_norm", _forward_fake, (partial(_backward, ops.layer_norm_backward.default), _keep)
        )
        register(
            f"{namespace}::add_layer_norm",
            _add_forward_fake,
            (partial(_add_backward, ops.layer_norm_backward.default), _add_keep),
        )
        register(f"{namespace}::layer_norm_backward", _backward_fake, None)
        self._layer_norm = ops.layer_norm.default
        self._add_layer_norm = ops.add_layer_norm.default

    def layer_norm(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
        """Return ``(x - mean) / sqrt(variance + eps) * weight + bias``, over the last dimension.

        Args:
            x: ``(..., columns)``; float32, bfloat16 or float16 (float64 on the CPU), computed in float32.
            weight: ``(columns,)``, of x's dtype or float32.
            bias: like weight.
            eps: added to the biased variance.

        Returns:
            A tensor like x.

        Raises:
            RuntimeError: naming the argument whose shape, dtype or device does not fit.

        Source: Ba et al., arXiv:1607.06450; tests/ops/layer_norm_reference.py
        """
        y: torch.Tensor = self._layer_norm(x, weight, bias, eps)[0]
        return y

    def add_layer_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add a residual, and normalise the sum, in one pass.

        Args:
            x: as for :meth:`layer_norm`.
            residual: like x.
            weight: ``(columns,)``.
            bias: ``(columns,)``.
            eps: added to the biased variance.

        Returns:
            The normalised sum, and the sum.

        Source: tests/ops/layer_norm_reference.py
        """
        y, total, _, _ = self._add_layer_norm(x, residual, weight, bias, eps)
        return y, total


def _forward_fake(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> tuple[torch.Tensor, ...]:
    return empty_contiguous(x), row_statistics(x), row_statistics(x)


def _add_forward_fake(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[torch.Tensor, ...]:
    y, *statistics = _forward_fake(x, weight, bias, eps)
    return y, torch.empty_like(y), *statistics


def _backward_fake(
    grad: torch.Tensor, grad_sum: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor,
    inverse_deviation: torch.Tensor,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    return empty_contiguous(x), empty_contiguous(weight), empty_contiguous(weight)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, weight, *_ = inputs
    ctx.save_for_backward(x, weight, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # none for the statistics


def _backward(backward: Any, ctx: Any, grad: torch.Tensor | None, *_: Any) -> tuple[torch.Tensor | None, ...]:
    if grad is None:
        return (None,) * 4
    return (*backward(grad, None, *ctx.saved_tensors), None)


def _add_keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _, total, *statistics = output
    ctx.save_for_backward(total, inputs[2], *statistics)
    ctx.mark_non_differentiable(*statistics)
    ctx.set_materialize_grads(False)  # none for the statistics


def _add_backward(
    backward: Any, ctx: Any, grad: torch.Tensor | None, grad_sum: torch.Tensor | None, *_: Any
) -> tuple[torch.Tensor | None, ...]:
    if grad is None and grad_sum is None:
        return (None,) * 5
    given = torch.zeros_like(ctx.saved_tensors[0]) if grad is None else grad
    grad_x, grad_weight, grad_bias = backward(given, grad_sum, *ctx.saved_tensors)
    return grad_x, grad_x.clone(), grad_weight, grad_bias, None
