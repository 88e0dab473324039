"""The functions of the op ``layer_norm``."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from .registration import OpFunctions, empty_contiguous, row_statistics

__all__ = ["LayerNormFunctions"]


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


def _backward(ops: Any, ctx: Any, grad: torch.Tensor | None, *_: Any) -> tuple[torch.Tensor | None, ...]:
    if grad is None:
        return (None,) * 4
    return (*ops.layer_norm_backward.default(grad, None, *ctx.saved_tensors), None)


def _add_keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _, total, *statistics = output
    ctx.save_for_backward(total, inputs[2], *statistics)
    ctx.mark_non_differentiable(*statistics)
    ctx.set_materialize_grads(False)  # none for the statistics


def _add_backward(
    ops: Any, ctx: Any, grad: torch.Tensor | None, grad_sum: torch.Tensor | None, *_: Any
) -> tuple[torch.Tensor | None, ...]:
    if grad is None and grad_sum is None:
        return (None,) * 5
    given = torch.zeros_like(ctx.saved_tensors[0]) if grad is None else grad
    grad_x, grad_weight, grad_bias = ops.layer_norm_backward.default(given, grad_sum, *ctx.saved_tensors)
    return grad_x, grad_x, grad_weight, grad_bias, None


class LayerNormFunctions(OpFunctions):
    """Layer normalisation over the last dimension."""

    OPS: ClassVar = {
        "layer_norm": (_forward_fake, _backward, _keep),
        "add_layer_norm": (_add_forward_fake, _add_backward, _add_keep),
        "layer_norm_backward": (_backward_fake,),
    }

    def layer_norm(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
        """See :func:`anyaccel.ops.layer_norm`."""
        y: torch.Tensor = self._layer_norm(x, weight, bias, eps)[0]
        return y

    def add_layer_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`anyaccel.ops.add_layer_norm`."""
        y, total, _, _ = self._add_layer_norm(x, residual, weight, bias, eps)
        return y, total
