"""The functions of the ops ``rms_norm`` and ``layer_norm``."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch

from .registration import OpFunctions, empty_contiguous, row_statistics

__all__ = ["LayerNormFunctions", "RMSNormFunctions"]


def _fake(statistics: int, x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    return empty_contiguous(x), *(row_statistics(x) for _ in range(statistics))


def _add_fake(statistics: int, x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    return empty_contiguous(x), *_fake(statistics, x)


def _backward_fake(
    weights: int, grad: torch.Tensor, grad_sum: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, ...]:
    return empty_contiguous(x), *(empty_contiguous(weight) for _ in range(weights))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], *output[1:])


def _add_keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.save_for_backward(output[1], inputs[2], *output[2:])
    ctx.set_materialize_grads(False)  # one of the two results may be unused


def _backward(
    op: str, weights: int, ops: Any, ctx: Any, grad: torch.Tensor | None, *_: Any
) -> tuple[torch.Tensor | None, ...]:
    if grad is None:
        return (None,) * (weights + 2)
    return *getattr(ops, op).default(grad, None, *ctx.saved_tensors), None


def _add_backward(
    op: str, weights: int, ops: Any, ctx: Any, grad: torch.Tensor | None, grad_sum: torch.Tensor | None, *_: Any
) -> tuple[torch.Tensor | None, ...]:
    if grad is None and grad_sum is None:
        return (None,) * (weights + 3)
    given = torch.zeros_like(ctx.saved_tensors[0]) if grad is None else grad
    grad_x, *grads = getattr(ops, op).default(given, grad_sum, *ctx.saved_tensors)
    return grad_x, grad_x, *grads, None


def _ops(name: str, weights: int, statistics: int) -> dict[str, tuple[Any, ...]]:
    backward = f"{name}_backward"
    return {
        name: (partial(_fake, statistics), partial(_backward, backward, weights), _keep, 1),
        f"add_{name}": (partial(_add_fake, statistics), partial(_add_backward, backward, weights), _add_keep, 2),
        backward: (partial(_backward_fake, weights),),
    }


class RMSNormFunctions(OpFunctions):
    """Root-mean-square normalisation over the last dimension."""

    OPS: ClassVar = _ops("rms_norm", weights=1, statistics=1)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
        """See :func:`anyaccel.ops.rms_norm`."""
        y: torch.Tensor = self._rms_norm(x, weight, eps)
        return y

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`anyaccel.ops.add_rms_norm`."""
        y, total = self._add_rms_norm(x, residual, weight, eps)
        return y, total


class LayerNormFunctions(OpFunctions):
    """Layer normalisation over the last dimension."""

    OPS: ClassVar = _ops("layer_norm", weights=2, statistics=2)

    def layer_norm(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
        """See :func:`anyaccel.ops.layer_norm`."""
        y: torch.Tensor = self._layer_norm(x, weight, bias, eps)
        return y

    def add_layer_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`anyaccel.ops.add_layer_norm`."""
        y, total = self._add_layer_norm(x, residual, weight, bias, eps)
        return y, total
