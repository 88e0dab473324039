"""Rotary position embedding, slow and simple: one pair of elements after another."""

from __future__ import annotations

import torch


def rotary_embedding(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    pairs = cos.shape[1]
    columns = list(x.unbind(-1))
    turned = list(columns)
    for pair in range(pairs):
        left, right = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + pairs)
        c, s = cos[:, pair].view(1, -1, 1), sin[:, pair].view(1, -1, 1)
        turned[left] = columns[left] * c - columns[right] * s
        turned[right] = columns[right] * c + columns[left] * s
    return torch.stack(turned, -1) if turned else x.clone()
