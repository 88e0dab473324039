"""Clipping of gradients by their norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .loading import loaded
from .sharded import are_sharded, norm_of, shards

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["clip_grad_norm_", "resolved"]


def resolved(grad: torch.Tensor | None) -> torch.Tensor | None:
    """Return a gradient without a lazy negation, which torch leaves on that of a real part of a complex number."""
    return grad.resolve_neg() if grad is not None and grad.is_neg() else grad


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
    grads = []
    for parameter in given:
        grad = parameter.grad
        if grad is not None:
            if grad.is_neg():
                parameter.grad = grad = grad.resolve_neg()
            grads.append(grad)
    if not grads:
        return torch.zeros(1, dtype=torch.float32, device="cpu")  # whatever torch's defaults are
    op = loaded("MultiTensorLoader")
    norm: torch.Tensor
    if are_sharded(grads):
        norm, grads = norm_of(grads, op.l2norm), shards(grads)
    else:
        norm = op.l2norm(grads)[0]
    op.scale(grads, grads, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
