"""Gradients that have no gradient of their own: to differentiate them again raises, whatever the loss was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["differentiable_once"]


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``backward`` whose results raise when they are differentiated.

    ``torch.autograd.function.once_differentiable`` does so only for what depends on the given gradients. The saved tensors
    are inputs of the node here, too: a gradient depends on them even if the loss is linear.
    """

    def once(ctx: Any, *grads: Any) -> Any:
        if not torch.is_grad_enabled():
            return backward(ctx, *grads)
        unpacked = _Unpacked(ctx)
        inputs = [each for each in (*unpacked.saved_tensors, *grads) if isinstance(each, torch.Tensor)]
        return _apply(lambda: backward(unpacked, *grads), *inputs)

    return once


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
        msg = (
            "trying to differentiate twice an op whose gradient has no derivative. "
            "Fix: compute the first gradient without create_graph=True."
        )
        raise RuntimeError(msg)


_apply: Any = _Once.apply
