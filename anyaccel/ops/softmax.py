"""Softmax of scaled attention scores with a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .loading import loaded

if TYPE_CHECKING:
    import torch

__all__ = ["scaled_masked_softmax", "scaled_upper_triang_masked_softmax"]


def scaled_masked_softmax(x: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 1.0) -> torch.Tensor:
    """Softmax of scaled scores, ``softmax(scale * x)`` over the last dimension, without the scores that a mask hides.

    Hidden scores get exactly 0, even if they are NaN. A row is all 0 if the mask hides all of it or if its visible scores are
    all -inf (torch gives NaN). A visible NaN or +inf makes its whole row NaN. Computed in float32
    (float64 for a float64 ``x``). ``x`` gets a gradient; a second derivative raises ``RuntimeError``.

    Args:
        x: the scores, ``(..., columns)``, 1 to 4 dimensions, any strides; float32, bfloat16 or float16, on the CPU also
            float64.
        mask: bool or uint8, on x's device, of a shape that expands to x's; True (not 0) hides a score. None hides nothing.
        scale: the factor of the scores.

    Returns:
        A contiguous tensor of x's shape and dtype.

    Raises:
        RuntimeError: if a shape, dtype or device does not fit; the message names the argument.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: tests/ops/softmax_reference.py

    Example:
        >>> scaled_masked_softmax(torch.zeros(2, 3), torch.tensor([[False, False, True], [True, True, True]]), scale=0.5)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 0.0000]])
    """
    y: torch.Tensor = loaded("ScaledMaskedSoftmaxLoader").scaled_masked_softmax(x, mask, scale)
    return y


def scaled_upper_triang_masked_softmax(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Causal softmax of scaled scores, ``softmax(scale * x)`` over the last dimension, where no query sees later keys.

    Query ``i`` of ``queries`` sees the keys ``0`` to ``i + keys - queries``: the diagonal ends in the last column. The other
    scores get exactly 0. Infinities and NaN are treated as in :func:`scaled_masked_softmax`. Computed in float32 (float64 for a
    float64 ``x``). ``x`` gets a gradient; a second derivative raises ``RuntimeError``.

    Args:
        x: the scores, ``(..., queries, keys)`` with ``keys >= queries``, any strides; float32, bfloat16 or float16, on
            the CPU also float64.
        scale: the factor of the scores.

    Returns:
        A contiguous tensor of x's shape and dtype.

    Raises:
        RuntimeError: if x has fewer than 2 dimensions, more queries than keys, or another dtype.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: tests/ops/softmax_reference.py

    Example:
        >>> scaled_upper_triang_masked_softmax(torch.zeros(2, 2))
        tensor([[1.0000, 0.0000],
                [0.5000, 0.5000]])
    """
    loader = loaded("ScaledUpperTriangleMaskedSoftmaxLoader")
    y: torch.Tensor = loader.scaled_upper_triang_masked_softmax(x, scale)
    return y
