"""``Dense``: a linear layer and a sigmoid, as a module with several implementations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .dense_modes import MODES, implementation

if TYPE_CHECKING:
    from .dense_modes import Mode

__all__ = ["Dense"]


class Dense(torch.nn.Linear):
    """A linear layer with a sigmoid, ``sigmoid(x @ weight.T + bias)``, with a choice of implementations.

    Parameters, their initial values and the state dict are those of ``torch.nn.Linear``, whatever the mode. Matrix products are
    torch's (oneDNN's for float32 on the CPU). Gradients and second derivatives are supported.

    Args:
        in_features: the size of x's last dimension.
        out_features: the size of the result's last dimension.
        bias: whether to add a learned bias ``(out_features,)``.
        mode: how it is computed; None is the fastest one available here. ``"py"``: an autograd function in Python. ``"cpp"``: the
            linear part in C++, the sigmoid by torch. ``"cuda"``: bias and sigmoid in one CUDA kernel, called from C++.
            ``"sycl"``: the same in SYCL, for XPUs and the CPU. ``"triton"``: the same in Triton. ``"ptx"``: the sigmoid in
            hand-written PTX, only float32 on an NVIDIA GPU.
        device: of the parameters; None is torch's default device.
        dtype: of the parameters; float32, bfloat16 or float16, on the CPU also float64, but not in mode ``"sycl"``. None is
            torch's default dtype.

    Raises:
        ValueError: if the mode is not one of these.
        RuntimeError: from a call, if x does not fit the parameters or the mode.
        OpError: from a call, if this machine lacks what the mode needs.

    Source: tests/ops/dense_reference.py

    Example:
        >>> dense = Dense(3, 2)
        >>> y = dense(torch.ones(4, 3))
        >>> y.shape, torch.allclose(y, torch.sigmoid(torch.ones(4, 3) @ dense.weight.T + dense.bias))
        (torch.Size([4, 2]), True)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        mode: Mode | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if mode is not None and mode not in MODES:
            implementation(mode, "cpu")  # raises for an unknown mode
        super().__init__(in_features, out_features, bias, device, dtype)
        self.mode = mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layer.

        Args:
            x: ``(..., in_features)``, at least one dimension, of the weight's dtype and device.

        Returns:
            A tensor ``(..., out_features)`` of x's dtype.

        Raises:
            RuntimeError: if x does not fit the parameters or the mode.
            OpError: if this machine lacks what the mode needs.
        """
        return implementation(self.mode, x.device.type)(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"
