"""``Dense``: a linear layer and a sigmoid, as a module with a choice of how it is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .dense_modes import MODES, implementation

if TYPE_CHECKING:
    from .dense_modes import Mode

__all__ = ["Dense"]


class Dense(torch.nn.Linear):
    """``sigmoid(x @ weight.T + bias)``; weights are ``torch.nn.Linear``'s, whatever the mode.

    Args:
        in_features: of x's last dimension.
        out_features: of the result's.
        bias: whether there is one.
        mode: how it is computed; None is the fastest for the tensors' device. ``"py"``: an autograd function in Python.
            ``"cpp"``: the linear part in C++, the sigmoid in Python. ``"cuda"``: bias and sigmoid in one CUDA kernel, called
            from C++. ``"sycl"``: the same in SYCL, on XPUs and on the CPU. ``"triton"``: the same in Triton. ``"ptx"``: the
            sigmoid in PTX, by hand.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: for a mode that there is not.

    Source: tests/ops/dense_reference.py
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
            implementation(mode, "cpu")  # which refuses it
        super().__init__(in_features, out_features, bias, device, dtype)
        self.mode = mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output.

        Args:
            x: ``(..., in_features)``, of the weight's dtype and device.

        Returns:
            A tensor ``(..., out_features)``.

        Raises:
            OpError: when this machine lacks what the mode needs.
            RuntimeError: when x does not fit.
        """
        return implementation(self.mode, x.device.type)(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"
