"""Gradients that have no gradient of their own: to differentiate them again raises, whatever the loss was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._C._functorch import is_batchedtensor, is_legacy_batchedtensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["differentiable_once"]


_REFUSAL = (
    "trying to differentiate twice an op whose gradient has no derivative. "
    "Fix: compute the first gradient without create_graph=True."
)


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``backward`` whose results raise when they are differentiated.

    ``torch.autograd.function.once_differentiable`` does so only for what depends on the given gradients. The saved tensors
    are inputs of the node here, too: a gradient depends on them even if the loss is linear.
    """

    def once(ctx: Any, *grads: Any) -> Any:
        if not torch.is_grad_enabled():
            return backward(ctx, *grads)
        if any(map(_is_batched, grads)):  # the node would be lost with the batch
            raise RuntimeError(_REFUSAL)
        unpacked = _Unpacked(ctx)
        inputs = [each for each in (*unpacked.saved_tensors, *grads) if isinstance(each, torch.Tensor)]
        return _apply(lambda: backward(unpacked, *grads), *inputs)

    return once


def _is_batched(grad: Any) -> bool:
    return isinstance(grad, torch.Tensor) and (is_legacy_batchedtensor(grad) or is_batchedtensor(grad))


class _Unpacked:
    """A context whose tensors are unpacked once, as activation checkpointing asks."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx
        self.saved_tensors = ctx.saved_tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, compute: Callable[[], Any], *_inputs: Any) -> Any:
        return compute()

    @staticmethod
    def backward(_ctx: Any, *_grads: Any) -> Any:
        raise RuntimeError(_REFUSAL)


_apply: Any = _Once.apply
