"""Adam and AdamW, slow and simple, in float64: one tensor, one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class AdamReference:
    """Keeps its own float64 copies; ``param`` is the expected parameter."""

    param: Tensor
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-2
    adamw_mode: bool = True
    bias_correction: bool = True
    maximize: bool = False

    def __post_init__(self) -> None:
        self.param = self.param.detach().double().clone()
        self.exp_avg = torch.zeros_like(self.param)
        self.exp_avg_sq = torch.zeros_like(self.param)
        self.step_count = 0

    def step(self, grad: Tensor) -> None:
        grad = grad.detach().double() * (-1.0 if self.maximize else 1.0)
        self.step_count += 1
        if self.adamw_mode:
            self.param = self.param - self.lr * self.weight_decay * self.param
        else:
            grad = grad + self.weight_decay * self.param
        self.exp_avg = self.beta1 * self.exp_avg + (1 - self.beta1) * grad
        self.exp_avg_sq = self.beta2 * self.exp_avg_sq + (1 - self.beta2) * grad * grad
        mean, square = self.exp_avg, self.exp_avg_sq
        if self.bias_correction:
            mean = mean / (1 - self.beta1**self.step_count)
            square = square / (1 - self.beta2**self.step_count)
        self.param = self.param - self.lr * mean / (square.sqrt() + self.eps)
