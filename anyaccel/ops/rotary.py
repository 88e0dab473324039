"""Rotary position embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .loading import loaded

if TYPE_CHECKING:
    import torch

__all__ = ["rotary_embedding"]


def rotary_embedding(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, interleaved: bool = False, inplace: bool = False
) -> torch.Tensor:
    """Rotate pairs of a head's elements by their position's angles: ``(a, b) -> (a cos - b sin, b cos + a sin)``.

    Computed in float32 (float64 for a float64 ``x``). ``x`` gets a gradient, ``cos`` and ``sin`` do not. Second
    derivatives are refused if ``inplace``.

    Args:
        x: ``(batch, positions, heads, head_dim)``, any strides; float32, bfloat16 or float16, on the CPU also float64.
        cos: ``(positions, pairs)``, the cosines of the angles (radians), on x's device, of any real dtype: converted to
            float32 (float64 for a float64 x). ``2 * pairs`` must not exceed ``head_dim``; elements from there on are copied.
        sin: the sines, of cos's shape and device.
        interleaved: pair the elements ``2 * i`` and ``2 * i + 1`` (GPT-J); otherwise ``i`` and ``i + pairs`` (GPT-NeoX, Llama).
        inplace: write the result to x. The elements of x must not overlap, and x must not be a leaf that requires a gradient.

    Returns:
        x itself if ``inplace``, otherwise a new contiguous tensor of x's shape and dtype.

    Raises:
        RuntimeError: if a shape, dtype or device does not fit, ``cos`` or ``sin`` requires a gradient, or x cannot be written.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Su et al., arXiv:2104.09864; tests/ops/rotary_embedding_reference.py

    Example:
        >>> x, quarter = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4), torch.ones(1, 2)  # 90 degrees: cos 0, sin 1
        >>> rotary_embedding(x, 1 - quarter, quarter).flatten()
        tensor([-3., -4.,  1.,  2.])
    """
    rotary = loaded("RotaryEmbeddingLoader")
    y: torch.Tensor = rotary.rotary_embedding(x, cos, sin, interleaved=interleaved, inplace=inplace)
    return y
