"""Masked softmax, slow and simple."""

from __future__ import annotations

import torch


def masked_softmax(x: torch.Tensor, mask: torch.Tensor | None, scale: float) -> torch.Tensor:
    powers = torch.exp(scale * (x - x.amax(-1, keepdim=True) if x.shape[-1] else x))
    if mask is not None:
        powers = torch.where(mask.bool(), 0.0, powers)
    total = powers.sum(-1, keepdim=True)
    return torch.where(total > 0, powers / total, 0.0 * powers)


def causal_softmax(x: torch.Tensor, scale: float) -> torch.Tensor:
    queries, keys = x.shape[-2:]
    hidden = torch.ones(queries, keys, dtype=torch.bool, device=x.device).triu(1 + keys - queries)
    return masked_softmax(x, hidden, scale)
