"""Common code for the frameworks: a small model with our norms or torch's, and our optimizers with their peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from anyaccel import ops

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIMIZERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "CPUAdam": (lambda params: ops.CPUAdam(params, lr=1e-2), lambda params: torch.optim.AdamW(params, lr=1e-2)),
    "FusedAdam": (lambda params: ops.FusedAdam(params, lr=1e-2), lambda params: torch.optim.AdamW(params, lr=1e-2)),
    "FusedSGD": (
        lambda params: ops.FusedSGD(params, lr=0.1, momentum=0.9, nesterov=True),
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    ),
    "CPUAdagrad": (lambda params: ops.CPUAdagrad(params, lr=0.1), lambda params: torch.optim.Adagrad(params, lr=0.1)),
}


class Net(nn.Module):
    def __init__(self, *, ours: bool) -> None:
        super().__init__()
        norm, layer_norm = (ops.RMSNorm, ops.LayerNorm) if ours else (nn.RMSNorm, nn.LayerNorm)
        self.layers = nn.Sequential(
            nn.Linear(16, 32), norm(32, eps=1e-6), nn.Tanh(), nn.Linear(32, 32), layer_norm(32), nn.Linear(32, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def net(*, ours: bool) -> Net:
    torch.manual_seed(0)
    return Net(ours=ours)


def data() -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return torch.utils.data.TensorDataset(
        torch.randn(96, 16, generator=generator), torch.randn(96, 1, generator=generator)
    )
