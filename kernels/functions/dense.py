"""The functions of the op ``dense``."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

from .autocast import without_autocast
from .registration import OpFunctions, empty_contiguous

__all__ = ["DenseFunctions", "rows_of"]


def _fake(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _backward_fake(grad: torch.Tensor, y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    return empty_contiguous(x), empty_contiguous(weight), weight.new_empty(weight.shape[:1])


def _linear_backward_fake(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    return empty_contiguous(x), empty_contiguous(weight)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(output, *inputs[:2])
    ctx.has_bias = inputs[2] is not None


def _linear_keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.has_bias = inputs[2] is not None


def _backward(ops: Any, ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    y, x, weight = ctx.saved_tensors
    if torch.is_grad_enabled():  # for second derivatives, use torch's own differentiable operations
        grad_z = grad * y * (1 - y)
        grad_x, grad_weight = _products(grad_z, x, weight)
        grad_bias = rows_of(grad_z).sum(0)
    else:
        grad_x, grad_weight, grad_bias = ops.dense_backward.default(grad, y, x, weight)
    return grad_x, grad_weight, grad_bias if ctx.has_bias else None


def _linear_backward(ops: Any, ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    product = _products if torch.is_grad_enabled() else ops.dense_linear_backward.default
    products = product(grad, x, weight)
    return *products, rows_of(grad).sum(0) if ctx.has_bias else None


def _require_of_linear(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Check shapes as the op does; torch's products would also take those of other layers."""
    is_layer = weight.dim() == 2 and x.dim() > 0 and x.shape[-1] == weight.shape[1]
    is_layer = is_layer and grad.dtype == x.dtype == weight.dtype and grad.is_floating_point()
    if not is_layer or grad.shape != (*x.shape[:-1], weight.shape[0]):
        msg = (
            f"dense_linear_backward failed: got grad, x and weight of shapes {tuple(grad.shape)}, {tuple(x.shape)} and "
            f"{tuple(weight.shape)}, and of {grad.dtype}, {x.dtype} and {weight.dtype}; expected (..., out_features), "
            f"(..., in_features) and (out_features, in_features), of one floating dtype. "
            f"Fix: pass x and weight as they were passed to linear, and the gradient of its result."
        )
        raise RuntimeError(msg)


def _products(grad_z: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with without_autocast(x):
        return grad_z @ weight, rows_of(grad_z).t() @ rows_of(x)


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor's last dimension as rows, of which there may be none, and which may be empty."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


class DenseFunctions(OpFunctions):
    """A linear layer followed by a sigmoid, and the linear layer alone.

    All take float32, bfloat16 or float16 (float64 on the CPU and on CUDA devices). torch computes the matrix products; on the
    CPU in float32, oneDNN does.

    """

    HAS_SECOND_DERIVATIVES = True
    OPS: ClassVar = {
        "dense": (_fake, _backward, _keep),
        "dense_backward": (_backward_fake,),
        "dense_linear": (_fake, _linear_backward, _linear_keep),
        "dense_linear_backward": (_linear_backward_fake,),
    }

    def dense(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Return ``sigmoid(x @ weight.T + bias)``, with bias and sigmoid in one pass.

        Args:
            x: ``(..., in_features)``.
            weight: ``(out_features, in_features)``, of x's dtype.
            bias: ``(out_features,)``, of x's dtype.

        Returns:
            A tensor ``(..., out_features)``.

        Raises:
            RuntimeError: naming the argument whose shape, dtype or device does not fit.

        Source: tests/ops/dense_reference.py
        """
        y: torch.Tensor = self._dense(x, weight, bias)
        return y

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Return ``x @ weight.T + bias``.

        Args:
            x: ``(..., in_features)``.
            weight: ``(out_features, in_features)``, of x's dtype.
            bias: ``(out_features,)``, of x's dtype.

        Returns:
            A tensor ``(..., out_features)``.

        Raises:
            RuntimeError: naming the argument whose shape, dtype or device does not fit.
        """
        z: torch.Tensor = self._dense_linear(x, weight, bias)
        return z

    def linear_backward(
        self, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the gradients of :meth:`linear`'s ``x`` and ``weight``.

        Args:
            grad: ``(..., out_features)``, the gradient of linear's result.
            x: ``(..., in_features)``, of grad's dtype.
            weight: ``(out_features, in_features)``, of grad's dtype.

        Returns:
            The pair of gradients, of the shapes of x and weight.

        Raises:
            RuntimeError: naming the argument whose shape, dtype or device does not fit.
        """
        if torch.is_grad_enabled():  # for second derivatives, use torch's own differentiable operations
            _require_of_linear(grad, x, weight)
            return _products(grad, x, weight)
        grads: tuple[torch.Tensor, torch.Tensor] = self._ops.dense_linear_backward.default(grad, x, weight)
        return grads
