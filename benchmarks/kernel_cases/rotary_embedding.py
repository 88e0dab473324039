"""The cases of the op ``rotary_embedding``."""

from __future__ import annotations

import torch
from kernel_case import Case, random

from anyaccel import ops


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat([left * c - right * s, right * c + left * s], -1)


def _heads(rows: int, columns: int, device: str) -> list[torch.Tensor]:
    angles = torch.randn(rows, 64, device=device)
    return [random(1, rows, columns // 128, 128, device=device), angles.cos(), angles.sin()]


CASES = {
    "rotary embedding": Case(_heads, ops.rotary_embedding, _rotate, 4),
}
