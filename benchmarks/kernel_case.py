"""A case of ``bench_kernels.py``. Each op's cases are in ``kernel_cases/<op>.py``, as a dictionary ``CASES`` by title."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Case", "random"]


@dataclass(frozen=True)
class Case:
    """Functions for the inputs, for ours and for torch's, and the elements moved per element of the shape."""

    inputs: Callable[[int, int, str], list[torch.Tensor]]
    ours: Callable[..., torch.Tensor]
    eager: Callable[..., torch.Tensor]
    moved: int


def random(*shape: int, device: str, grad: bool = True) -> torch.Tensor:
    """Return random numbers that require a gradient."""
    return torch.randn(*shape, device=device).requires_grad_(grad)
