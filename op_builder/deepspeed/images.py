"""deepspeed 0.19.8's module for diffusion models, with its function names and arguments, on torch operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["SpatialInferenceModule"]


class SpatialInferenceModule:
    """The module ``spatial_inference``: sums with a bias per channel. Any device and dtype.

    Sums are rounded in the order of deepspeed's kernel. Inputs are ``(batch, channels, height, width)``, whose memory format the
    results keep, or ``(batch, positions, channels)``.
    """

    def nhwc_bias_add(self, activation: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return ``activation + bias``.

        Args:
            activation: ``(batch, channels, height, width)`` or ``(batch, positions, channels)``.
            bias: ``(channels,)``, of activation's dtype.

        Returns:
            A new tensor like ``activation``.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        return activation + _of_channels("nhwc_bias_add", activation, bias)

    def nhwc_bias_add_add(self, activation: torch.Tensor, bias: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return ``activation + (bias + other)``.

        Args:
            activation: ``(batch, channels, height, width)`` or ``(batch, positions, channels)``.
            bias: ``(channels,)``, of activation's dtype.
            other: of activation's shape and dtype.

        Returns:
            A new tensor like ``activation``.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        _require_alike("nhwc_bias_add_add", activation, other)
        return activation + (other + _of_channels("nhwc_bias_add_add", activation, bias))

    def nhwc_bias_add_bias_add(
        self, activation: torch.Tensor, bias: torch.Tensor, other: torch.Tensor, other_bias: torch.Tensor
    ) -> torch.Tensor:
        """Return ``(activation + bias) + (other + other_bias)``.

        Args:
            activation: ``(batch, channels, height, width)`` or ``(batch, positions, channels)``.
            bias: ``(channels,)``, of activation's dtype.
            other: of activation's shape and dtype.
            other_bias: like ``bias``.

        Returns:
            A new tensor like ``activation``.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        _require_alike("nhwc_bias_add_bias_add", activation, other)
        total = activation + _of_channels("nhwc_bias_add_bias_add", activation, bias)
        return total.add_(other + _of_channels("nhwc_bias_add_bias_add", activation, other_bias))


def _of_channels(function: str, activation: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return a bias in the shape that adds it to each channel."""
    if activation.dim() not in (3, 4):
        msg = (
            f"{function} failed: got an activation of shape {tuple(activation.shape)}; expected (batch, channels, height, width) "
            f"or (batch, positions, channels). Fix: add a batch with activation.unsqueeze(0)."
        )
        raise ValueError(msg)
    channels = activation.shape[1 if activation.dim() == 4 else 2]
    if bias.shape != (channels,) or bias.dtype != activation.dtype:
        msg = (
            f"{function} failed: got a bias of shape {tuple(bias.shape)} and {bias.dtype}; expected ({channels},) and "
            f"{activation.dtype}. Fix: pass a bias with one element per channel, in the activation's dtype."
        )
        raise ValueError(msg)
    return bias[:, None, None] if activation.dim() == 4 else bias


def _require_alike(function: str, activation: torch.Tensor, other: torch.Tensor) -> None:
    if other.shape != activation.shape or other.dtype != activation.dtype:
        msg = (
            f"{function} failed: got other of shape {tuple(other.shape)} and {other.dtype}; expected {tuple(activation.shape)} "
            f"and {activation.dtype}, like the activation. Fix: pass other.expand_as(activation).to(activation.dtype)."
        )
        raise ValueError(msg)
