"""Activations of transformers: the gated units SwiGLU and GeGLU, and GELU of a biased input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .loading import loaded

if TYPE_CHECKING:
    import torch

__all__ = ["bias_gelu", "geglu", "swiglu"]


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Swish-gated linear unit: ``silu(gate) * up``, where ``silu(x) = x / (1 + exp(-x))``, element by element.

    The two halves that ``x.chunk(2, -1)`` returns are read in place, without a copy. Computed in float32 (float64 for float64
    inputs). Both arguments get gradients; a second derivative raises ``RuntimeError``.

    Args:
        gate: ``(..., columns)``, at least one dimension, any strides; float32, bfloat16 or float16, on the CPU also
            float64.
        up: of gate's shape, dtype and device; it is not broadcast.

    Returns:
        A contiguous tensor of gate's shape and dtype.

    Raises:
        RuntimeError: if a shape, dtype or device does not fit; the message names the argument.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Shazeer, arXiv:2002.05202; tests/ops/activations_reference.py

    Example:
        >>> gate, up = torch.tensor([[0.0, 100.0, 3.0, 2.0]]).chunk(2, -1)
        >>> swiglu(gate, up)
        tensor([[  0., 200.]])
    """
    y: torch.Tensor = loaded("ActivationsLoader").swiglu(gate, up)
    return y


def geglu(gate: torch.Tensor, up: torch.Tensor, approximate: Literal["none", "tanh"] = "none") -> torch.Tensor:
    """GELU-gated linear unit: ``gelu(gate) * up``, element by element.

    The two halves that ``x.chunk(2, -1)`` returns are read in place, without a copy. Computed in float32 (float64 for float64
    inputs). Both arguments get gradients; a second derivative raises ``RuntimeError``.

    Args:
        gate: ``(..., columns)``, at least one dimension, any strides; float32, bfloat16 or float16, on the CPU also
            float64.
        up: of gate's shape, dtype and device; it is not broadcast.
        approximate: ``"none"`` for ``x * (1 + erf(x / sqrt(2))) / 2``, or ``"tanh"`` for the approximation by tanh, as of
            :func:`torch.nn.functional.gelu`.

    Returns:
        A contiguous tensor of gate's shape and dtype.

    Raises:
        ValueError: if ``approximate`` is neither.
        RuntimeError: if a shape, dtype or device does not fit; the message names the argument.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Shazeer, arXiv:2002.05202; tests/ops/activations_reference.py

    Example:
        >>> geglu(torch.tensor([0.0, 100.0]), torch.tensor([3.0, 2.0]))
        tensor([  0., 200.])
    """
    y: torch.Tensor = loaded("ActivationsLoader").geglu(gate, up, approximate)
    return y


def bias_gelu(x: torch.Tensor, bias: torch.Tensor, approximate: Literal["none", "tanh"] = "tanh") -> torch.Tensor:
    """Add a bias and apply GELU, in one pass: ``gelu(x + bias)``.

    Computed in float32 (float64 for a float64 ``x``). ``x`` and ``bias`` get gradients; a second derivative raises
    ``RuntimeError``.

    Args:
        x: ``(..., columns)``, at least one dimension, any strides; float32, bfloat16 or float16, on the CPU also float64.
        bias: ``(columns,)``, of x's dtype and device.
        approximate: ``"tanh"`` for the approximation by tanh, or ``"none"`` for ``x * (1 + erf(x / sqrt(2))) / 2``, as of
            :func:`torch.nn.functional.gelu`. The default differs from :func:`geglu`'s.

    Returns:
        A contiguous tensor of x's shape and dtype.

    Raises:
        ValueError: if ``approximate`` is neither.
        RuntimeError: if a shape, dtype or device does not fit; the message names the argument.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Hendrycks & Gimpel, arXiv:1606.08415; tests/ops/activations_reference.py

    Example:
        >>> bias_gelu(torch.zeros(2, 2), torch.tensor([0.0, 100.0]))
        tensor([[  0., 100.],
                [  0., 100.]])
    """
    y: torch.Tensor = loaded("ActivationsLoader").bias_gelu(x, bias, approximate)
    return y
