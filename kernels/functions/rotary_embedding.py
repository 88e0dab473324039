"""The functions of the op ``rotary_embedding``."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.autograd.function import once_differentiable

from .eager import refuse_tangents
from .outputs import problem_of_writing
from .registration import OpFunctions, empty_contiguous, nothing

__all__ = ["RotaryEmbeddingFunctions"]


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool, turn: Any) -> Any:
        turn(x, cos, sin, interleaved, False)
        ctx.mark_dirty(x)
        ctx.save_for_backward(cos, sin)
        ctx.interleaved, ctx.turn = interleaved, turn
        return x

    @staticmethod
    @once_differentiable  # the in-place rotation is not differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        cos, sin = ctx.saved_tensors
        grad = grads[0].clone(memory_format=torch.contiguous_format)
        ctx.turn(grad, cos, sin, ctx.interleaved, True)
        return grad, None, None, None, None


def _check_in_place(x: torch.Tensor) -> None:
    """Refuse what torch would refuse when it has been written: its own check comes after :meth:`_InPlace.forward`."""
    problem = problem_of_writing(x)
    if not problem:
        return
    msg = f"rotary_embedding failed: got x that is {problem}; expected one that may be written. Fix: leave inplace out."
    raise RuntimeError(msg)


def _fake(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return empty_contiguous(x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, cos, sin, interleaved, inverse = inputs
    ctx.save_for_backward(cos, sin)
    ctx.interleaved, ctx.inverse = interleaved, inverse


def _backward(ops: Any, ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    cos, sin = ctx.saved_tensors
    grad_x = ops.rotary_embedding.default(grad, cos, sin, ctx.interleaved, not ctx.inverse)
    return grad_x, None, None, None, None


class RotaryEmbeddingFunctions(OpFunctions):
    """Rotary position embedding."""

    HAS_SECOND_DERIVATIVES = True
    OPS: ClassVar = {
        "rotary_embedding": (_fake, _backward, _keep),
        "rotary_embedding_": (nothing,),
    }

    def rotary_embedding(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, interleaved: bool = False, inplace: bool = False
    ) -> torch.Tensor:
        """See :func:`anyaccel.ops.rotary_embedding`."""
        if torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad):
            msg = (
                "rotary_embedding failed: cos or sin requires a gradient, and angles cannot be learned. "
                "Fix: pass cos.detach() and sin.detach()."
            )
            raise RuntimeError(msg)
        computed = torch.float64 if x.dtype == torch.float64 else torch.float32
        cos, sin = cos.to(computed), sin.to(computed)
        if inplace and torch.compiler.is_compiling():  # it loses the gradient of tensors that are marked as dirty
            return x.copy_(self._rotary_embedding(x, cos, sin, interleaved, False))
        if inplace:
            _check_in_place(x)
            refuse_tangents(self._ops.rotary_embedding_.default, (x,))
            turned: torch.Tensor = _InPlace.apply(x, cos, sin, interleaved, self._rotary_embedding_)  # type: ignore[no-untyped-call]
            return turned
        result: torch.Tensor = self._rotary_embedding(x, cos, sin, interleaved, False)
        return result
