"""The functions of the op ``rotary_embedding``."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from .registration import empty_contiguous, ops_of, register

__all__ = ["RotaryEmbedding"]


class RotaryEmbedding:
    """Rotary position embedding.

    Args:
        namespace: of the torch ops to call.
    """

    def __init__(self, namespace: str) -> None:
        ops = ops_of(namespace)
        register(f"{namespace}::rotary_embedding", _fake, (partial(_backward, ops.rotary_embedding.default), _keep))
        register(f"{namespace}::rotary_embedding_", _in_place_fake, None)
        self._turned = ops.rotary_embedding.default
        self._turn = ops.rotary_embedding_.default

    def rotary_embedding(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, interleaved: bool = False, inplace: bool = False
    ) -> torch.Tensor:
        """Turn each pair of a head's elements by its position's angle.

        Args:
            x: ``(batch, positions, heads, head_dim)``, in any layout; float32, bfloat16 or float16 (float64 on the CPU).
            cos: ``(positions, pairs)``, the cosines of the angles; head_dim is ``2 * pairs`` or more, and what is beyond is
                copied.
            sin: like cos.
            interleaved: pairs are ``(2 i, 2 i + 1)``; otherwise ``(i, i + pairs)``.
            inplace: write to x and return it. Where x requires a gradient it must not be a leaf.

        Returns:
            A tensor like x.

        Raises:
            RuntimeError: naming the argument whose shape, dtype or device does not fit, or when cos or sin requires a gradient.

        Source: Su et al., arXiv:2104.09864; tests/ops/rotary_embedding_reference.py
        """
        if torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad):
            msg = (
                "rotary_embedding failed: got cos or sin that requires a gradient; expected angles that are not learned. "
                "Fix: detach them."
            )
            raise RuntimeError(msg)
        computed = torch.float64 if x.dtype == torch.float64 else torch.float32
        cos, sin = cos.to(computed), sin.to(computed)
        if inplace and torch.compiler.is_compiling():  # which loses the gradient of what a Function marks as dirty
            return x.copy_(self._turned(x, cos, sin, interleaved, False))
        if inplace:
            turned: torch.Tensor = _InPlace.apply(x, cos, sin, interleaved, self._turn)  # type: ignore[no-untyped-call]
            return turned
        result: torch.Tensor = self._turned(x, cos, sin, interleaved, False)
        return result


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool, turn: Any) -> Any:
        turn(x, cos, sin, interleaved, False)
        ctx.mark_dirty(x)
        ctx.save_for_backward(cos, sin)
        ctx.interleaved, ctx.turn = interleaved, turn
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        cos, sin = ctx.saved_tensors
        grad = grads[0].clone(memory_format=torch.contiguous_format)
        ctx.turn(grad, cos, sin, ctx.interleaved, True)
        return grad, None, None, None, None


def _fake(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return empty_contiguous(x)


def _in_place_fake(*_: Any) -> None:
    return None


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, cos, sin, interleaved, inverse = inputs
    ctx.save_for_backward(cos, sin)
    ctx.interleaved, ctx.inverse = interleaved, inverse


def _backward(turned: Any, ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    cos, sin = ctx.saved_tensors
    return turned(grad, cos, sin, ctx.interleaved, not ctx.inverse), None, None, None, None
