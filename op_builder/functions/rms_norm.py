"""The functions of the op ``rms_norm``."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from .registration import OpFunctions, empty_contiguous, row_statistics

__all__ = ["RMSNormFunctions"]


def _forward_fake(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, ...]:
    return empty_contiguous(x), row_statistics(x)


def _add_forward_fake(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, ...]:
    y, statistics = _forward_fake(x, weight, eps)
    return y, torch.empty_like(y), statistics


def _backward_fake(
    grad: torch.Tensor, grad_sum: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor, inverse_rms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return empty_contiguous(x), empty_contiguous(weight)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # none for the statistics


def _backward(ops: Any, ctx: Any, grad: torch.Tensor | None, _: Any) -> tuple[torch.Tensor | None, ...]:
    if grad is None:
        return (None,) * 3
    return (*ops.rms_norm_backward.default(grad, None, *ctx.saved_tensors), None)


def _add_keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _, total, inverse_rms = output
    ctx.save_for_backward(total, inputs[2], inverse_rms)
    ctx.mark_non_differentiable(inverse_rms)
    ctx.set_materialize_grads(False)  # none for the statistics


def _add_backward(
    ops: Any, ctx: Any, grad: torch.Tensor | None, grad_sum: torch.Tensor | None, _: Any
) -> tuple[torch.Tensor | None, ...]:
    if grad is None and grad_sum is None:
        return (None,) * 4
    given = torch.zeros_like(ctx.saved_tensors[0]) if grad is None else grad
    grad_x, grad_weight = ops.rms_norm_backward.default(given, grad_sum, *ctx.saved_tensors)
    return grad_x, grad_x, grad_weight, None


class RMSNormFunctions(OpFunctions):
    """Root-mean-square normalisation over the last dimension."""

    OPS: ClassVar = {
        "rms_norm": (_forward_fake, _backward, _keep),
        "add_rms_norm": (_add_forward_fake, _add_backward, _add_keep),
        "rms_norm_backward": (_backward_fake,),
    }

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
        """See :func:`anyaccel.ops.rms_norm`."""
        y: torch.Tensor = self._rms_norm(x, weight, eps)[0]
        return y

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`anyaccel.ops.add_rms_norm`."""
        y, total, _ = self._add_rms_norm(x, residual, weight, eps)
        return y, total
