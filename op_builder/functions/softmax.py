"""The functions of the op ``softmax``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from .registration import empty_contiguous, ops_of, register

if TYPE_CHECKING:
    import torch

__all__ = ["Softmax"]


class Softmax:
    """Softmax of scaled scores, some of them hidden.

    Args:
        namespace: of the torch ops to call.
    """

    def __init__(self, namespace: str) -> None:
        ops = ops_of(namespace)
        derivative = partial(_backward, ops.softmax_backward.default)
        register(f"{namespace}::scaled_masked_softmax", _fake, (partial(derivative, 3), _keep))
        register(f"{namespace}::scaled_upper_triang_masked_softmax", _fake, (partial(derivative, 2), _keep))
        register(f"{namespace}::softmax_backward", _fake, None)
        self._masked = ops.scaled_masked_softmax.default
        self._causal = ops.scaled_upper_triang_masked_softmax.default

    def scaled_masked_softmax(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 1.0
    ) -> torch.Tensor:
        """Return ``softmax(scale * x)`` over the last dimension, without what the mask hides.

        Args:
            x: the scores, of 4 dimensions at most; float32, bfloat16 or float16 (float64 on the CPU), computed in float32.
            mask: bool or uint8, expanding to x's shape; what is True is hidden, and gets exactly 0. A row that is hidden
                altogether is 0.
            scale: the factor of the scores.

        Returns:
            A tensor like x.

        Raises:
            RuntimeError: naming the argument whose shape, dtype or device does not fit.

        Source: tests/ops/softmax_reference.py
        """
        y: torch.Tensor = self._masked(x, mask, scale)
        return y

    def scaled_upper_triang_masked_softmax(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """Return ``softmax(scale * x)`` where the scores right of the diagonal are hidden.

        Args:
            x: ``(..., queries, keys)``, with as many keys as queries or more; the diagonal ends in the last column.
            scale: the factor of the scores.

        Returns:
            A tensor like x.

        Source: tests/ops/softmax_reference.py
        """
        y: torch.Tensor = self._causal(x, scale)
        return y


def _fake(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return empty_contiguous(x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.scale = inputs[-1]


def _backward(backward: Any, inputs: int, ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (y,) = ctx.saved_tensors
    return (backward(grad, y, ctx.scale), *[None] * (inputs - 1))
