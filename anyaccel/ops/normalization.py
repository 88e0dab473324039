"""Normalisation over the last dimension: RMS and layer normalisation, with and without a residual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .loading import loaded

if TYPE_CHECKING:
    import torch

__all__ = ["add_layer_norm", "add_rms_norm", "layer_norm", "rms_norm"]


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Root-mean-square normalisation: ``x / sqrt(mean(x ** 2) + eps) * weight`` over the last dimension.

    The sums are computed in float32 (float64 for a float64 ``x``). A NaN affects only its own row. ``x`` and ``weight`` get
    gradients; a second derivative raises ``RuntimeError``.

    Args:
        x: ``(..., columns)``, at least one dimension, any strides; float32, bfloat16 or float16, on the CPU also float64.
        weight: ``(columns,)``, on x's device; of x's dtype, or float32 if x is bfloat16 or float16.
        eps: added to the mean square; 0 or more, which is not checked.

    Returns:
        A contiguous tensor of x's shape and dtype.

    Raises:
        RuntimeError: if a shape, dtype or device does not fit; the message names the argument.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Zhang & Sennrich, arXiv:1910.07467; tests/ops/rms_norm_reference.py

    Example:
        >>> rms_norm(torch.tensor([[1.0, 7.0], [-2.0, 14.0]]), torch.tensor([1.0, 10.0]), eps=0.0)
        tensor([[ 0.2000, 14.0000],
                [-0.2000, 14.0000]])
    """
    y: torch.Tensor = loaded("RMSNormLoader").rms_norm(x, weight, eps)
    return y


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add a residual and normalise the sum, in one pass: ``total = x + residual; y = rms_norm(total, weight, eps)``.

    The sum is rounded to x's dtype before it is normalised. ``x``, ``residual`` and ``weight`` get gradients; a second
    derivative raises ``RuntimeError``.

    Args:
        x: ``(..., columns)``, at least one dimension, any strides; float32, bfloat16 or float16, on the CPU also float64.
        residual: of x's shape, dtype and device; it is not broadcast.
        weight: ``(columns,)``, on x's device; of x's dtype, or float32 if x is bfloat16 or float16.
        eps: added to the mean square; 0 or more, which is not checked.

    Returns:
        The pair ``(y, total)``: two contiguous tensors of x's shape and dtype.

    Raises:
        RuntimeError: if a shape, dtype or device does not fit; the message names the argument.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Zhang & Sennrich, arXiv:1910.07467; tests/ops/rms_norm_reference.py

    Example:
        >>> y, total = add_rms_norm(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 5.0]), torch.ones(2), eps=0.0)
        >>> y, total
        (tensor([0.2000, 1.4000]), tensor([1., 7.]))
    """
    y, total = loaded("RMSNormLoader").add_rms_norm(x, residual, weight, eps)
    return y, total


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """Layer normalisation: ``(x - mean) / sqrt(variance + eps) * weight + bias`` over the last dimension.

    The variance is the biased one (divided by ``columns``). The sums are computed in float32 (float64 for a float64 ``x``). A
    NaN affects only its own row. ``x``, ``weight`` and ``bias`` get gradients; a second derivative raises ``RuntimeError``.

    Args:
        x: ``(..., columns)``, at least one dimension, any strides; float32, bfloat16 or float16, on the CPU also float64.
        weight: ``(columns,)``, on x's device; of x's dtype, or float32 if x is bfloat16 or float16.
        bias: of weight's shape, dtype and device.
        eps: added to the variance; 0 or more, which is not checked.

    Returns:
        A contiguous tensor of x's shape and dtype.

    Raises:
        RuntimeError: if a shape, dtype or device does not fit; the message names the argument.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Ba et al., arXiv:1607.06450; tests/ops/layer_norm_reference.py

    Example:
        >>> layer_norm(torch.tensor([[1.0, 3.0]]), torch.ones(2), torch.tensor([0.0, 10.0]), eps=0.0)
        tensor([[-1., 11.]])
    """
    y: torch.Tensor = loaded("LayerNormLoader").layer_norm(x, weight, bias, eps)
    return y


def add_layer_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add a residual and normalise the sum, in one pass: ``total = x + residual; y = layer_norm(total, weight, bias, eps)``.

    The sum is rounded to x's dtype before it is normalised. ``x``, ``residual``, ``weight`` and ``bias`` get gradients; a
    second derivative raises ``RuntimeError``.

    Args:
        x: ``(..., columns)``, at least one dimension, any strides; float32, bfloat16 or float16, on the CPU also float64.
        residual: of x's shape, dtype and device; it is not broadcast.
        weight: ``(columns,)``, on x's device; of x's dtype, or float32 if x is bfloat16 or float16.
        bias: of weight's shape, dtype and device.
        eps: added to the variance; 0 or more, which is not checked.

    Returns:
        The pair ``(y, total)``: two contiguous tensors of x's shape and dtype.

    Raises:
        RuntimeError: if a shape, dtype or device does not fit; the message names the argument.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Ba et al., arXiv:1607.06450; tests/ops/layer_norm_reference.py

    Example:
        >>> y, total = add_layer_norm(torch.tensor([1.0, 2.0]), torch.ones(2), torch.ones(2), torch.zeros(2), eps=0.0)
        >>> y, total
        (tensor([-1.,  1.]), tensor([2., 3.]))
    """
    y, total = loaded("LayerNormLoader").add_layer_norm(x, residual, weight, bias, eps)
    return y, total
