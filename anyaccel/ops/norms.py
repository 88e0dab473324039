"""``RMSNorm`` and ``LayerNorm`` as modules, in the style of ``torch.nn``."""

from __future__ import annotations

import torch

from . import functional

__all__ = ["LayerNorm", "RMSNorm"]


class _Norm(torch.nn.Module):
    """The common base: a size, an epsilon, a weight of ones."""

    def __init__(
        self, size: int, eps: float, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.size = size
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(size, device=device, dtype=dtype))

    def extra_repr(self) -> str:
        return f"{self.size}, eps={self.eps}"


class RMSNorm(_Norm):
    """RMS normalisation as a layer: ``x / sqrt(mean(x ** 2) + eps) * weight``, with an optional residual added in the same pass.

    It is :func:`rms_norm` (with a residual :func:`add_rms_norm`) with a learned ``weight`` that starts with ones.

    Args:
        size: of the last dimension, an int; tuples as for ``torch.nn.RMSNorm`` do not work.
        eps: added to the mean square.
        device: of the weight; None is torch's default device.
        dtype: of the weight; None is torch's default dtype. float32 suits float32, bfloat16 and float16 inputs, any other
            dtype only inputs of the same one.

    Raises:
        RuntimeError: from a call, if the input's shape, dtype or device does not fit; the message names the argument.
        OpError: from the first call, if the kernel cannot be built or loaded on this machine.

    Source: Zhang & Sennrich, arXiv:1910.07467; tests/ops/rms_norm_reference.py

    Example:
        >>> norm = RMSNorm(2, eps=0.0)
        >>> y, total = norm(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 5.0]))
        >>> y.detach(), total.detach()
        (tensor([0.2000, 1.4000]), tensor([1., 7.]))
    """

    def __init__(
        self, size: int, eps: float = 1e-6, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(size, eps, device, dtype)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Normalise x, or with a residual the sum of both.

        Args:
            x: ``(..., size)``, on the weight's device.
            residual: of x's shape and dtype.

        Returns:
            The normalised x; with a residual the pair of the normalised sum and the sum. All are like x.

        Raises:
            RuntimeError: if an argument does not fit.
            OpError: if the kernel cannot be built or loaded.
        """
        if residual is None:
            return functional.rms_norm(x, self.weight, self.eps)
        return functional.add_rms_norm(x, residual, self.weight, self.eps)


class LayerNorm(_Norm):
    """Layer normalisation as a layer, ``(x - mean) / sqrt(variance + eps) * weight + bias``, with an optional residual.

    It is :func:`layer_norm` (with a residual :func:`add_layer_norm`) with a learned ``weight`` that starts with ones and a
    learned ``bias`` that starts with zeros. The variance is the biased one.

    Args:
        size: of the last dimension, an int; tuples as for ``torch.nn.LayerNorm`` do not work.
        eps: added to the variance.
        device: of weight and bias; None is torch's default device.
        dtype: of weight and bias; None is torch's default dtype. float32 suits float32, bfloat16 and float16 inputs, any other
            dtype only inputs of the same one.

    Raises:
        RuntimeError: from a call, if the input's shape, dtype or device does not fit; the message names the argument.
        OpError: from the first call, if the kernel cannot be built or loaded on this machine.

    Source: Ba et al., arXiv:1607.06450; tests/ops/layer_norm_reference.py

    Example:
        >>> norm = LayerNorm(2, eps=0.0)
        >>> norm(torch.tensor([[1.0, 3.0]])).detach()
        tensor([[-1.,  1.]])
    """

    def __init__(
        self, size: int, eps: float = 1e-5, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(size, eps, device, dtype)
        self.bias = torch.nn.Parameter(torch.zeros(size, device=device, dtype=dtype))

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Normalise x, or with a residual the sum of both.

        Args:
            x: ``(..., size)``, on the weight's device.
            residual: of x's shape and dtype.

        Returns:
            The normalised x; with a residual the pair of the normalised sum and the sum. All are like x.

        Raises:
            RuntimeError: if an argument does not fit.
            OpError: if the kernel cannot be built or loaded.
        """
        if residual is None:
            return functional.layer_norm(x, self.weight, self.bias, self.eps)
        return functional.add_layer_norm(x, residual, self.weight, self.bias, self.eps)
