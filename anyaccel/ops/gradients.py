"""Clipping of gradients by their norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .loading import loaded
from .sharded import are_sharded, norm_of, shards

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["clip_grad_norm_", "resolve"]


def resolve(grads: list[Any]) -> bool:
    """Replace gradients with a lazy negation in a list, and return whether there were any.

    torch leaves one on the gradient of the real part of a complex number. Kernels refuse them; to ask each gradient in advance
    would cost a step a tenth, and cannot be traced.
    """
    negated = [index for index, grad in enumerate(grads) if grad.is_neg()]
    for index in negated:
        grads[index] = grads[index].resolve_neg()
    return bool(negated)


@torch.no_grad()
def clip_grad_norm_(parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float) -> torch.Tensor:
    """Scale gradients in place so that their common 2-norm is at most ``max_norm``: ``grad *= min(1, max_norm / (norm + 1e-6))``.

    It does not wait for the device. A NaN makes all gradients NaN; an infinity makes the infinite elements NaN and the others 0.
    Both are as in torch's function.

    Args:
        parameters: one tensor or several, of any shapes, all gradients on one device; those without a gradient are skipped.
            Gradients are float32, bfloat16 or float16 (no float64), dense, ordinary ones or ``DTensor``.
        max_norm: the largest norm of all gradients together; 0 or more, which is not checked.

    Returns:
        The norm before clipping, float32 ``(1,)`` on the gradients' device, or 0 on the CPU if there is no gradient.

    Raises:
        RuntimeError: if gradients are on several devices or of another dtype, or a ``DTensor`` holds partial sums.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: ``torch.nn.utils.clip_grad_norm_``; tests/ops/test_fronts.py

    Example:
        >>> parameter = torch.nn.Parameter(torch.zeros(2))
        >>> parameter.grad = torch.tensor([3.0, 4.0])
        >>> clip_grad_norm_(parameter, max_norm=1.0), parameter.grad
        (tensor([5.]), tensor([0.6000, 0.8000]))
    """
    given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    owners = [parameter for parameter in given if parameter.grad is not None]
    grads: list[Any] = [parameter.grad for parameter in owners]
    if not grads:
        return torch.zeros(1, dtype=torch.float32, device="cpu")  # whatever torch's defaults are
    op = loaded("MultiTensorLoader")
    try:
        return _clipped(op, grads, max_norm)
    except RuntimeError:
        if not resolve(grads):
            raise
    for parameter, grad in zip(owners, grads, strict=True):
        parameter.grad = grad
    return _clipped(op, grads, max_norm)


def _clipped(op: Any, grads: list[Any], max_norm: float) -> torch.Tensor:
    norm: torch.Tensor
    if are_sharded(grads):
        norm, grads = norm_of(grads, op.l2norm), shards(grads)
    else:
        norm = op.l2norm(grads)[0]
    op.scale(grads, grads, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
