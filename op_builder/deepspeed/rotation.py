"""Rotation of queries and keys by their positions, in halves, as in deepspeed's two inference modules."""

from __future__ import annotations

import torch

__all__ = ["frequencies", "rotated"]


def frequencies(theta: float, channels: int, device: torch.device) -> torch.Tensor:
    """Return the angle per token of each channel of a half, float32 ``(channels / 2,)``: ``theta ** (-2 * i / channels)``."""
    return torch.pow(theta, -torch.arange(0, channels, 2, dtype=torch.float32, device=device) / channels)


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotate the first channels of heads, computed in float32.

    Args:
        x: ``(..., head size)``.
        angles: ``(..., half)``: channel ``i`` rotates with channel ``i + half``; channels beyond both do not change.

    Returns:
        A tensor like ``x``.
    """
    half = angles.shape[-1]
    first, second, rest = x.float().split([half, half, x.shape[-1] - 2 * half], -1)
    turned = [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin(), rest]
    return torch.cat(turned, -1).to(x.dtype)
