"""Groupwise quantization, slow and simple, in float64."""

from __future__ import annotations

import torch


def quantize(x: torch.Tensor, groups: int, bits: int, symmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the integers, one per entry, and the parameters."""
    rows = x.double().view(groups, -1)
    steps = 2.0**bits
    if symmetric:
        offset = torch.zeros(groups, 1, dtype=torch.float64)
        span = 2 * rows.abs().amax(1, keepdim=True)
    else:
        largest, smallest = rows.amax(1, keepdim=True), rows.amin(1, keepdim=True)
        offset, span = (largest + smallest) / 2, largest - smallest
    scale = torch.where(span > 0, span / steps, 1.0)
    codes = torch.clamp(torch.round((rows - offset) / scale), -steps / 2, steps / 2 - 1)
    return codes, scale if symmetric else torch.cat([scale, offset], 1)


def unpack(q: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the integers in bytes, one per entry; for 4 bits, the even one is in the high nibble."""
    if bits == 8:
        return q.flatten().long()
    entries = []
    for byte in q.flatten().tolist():
        high, low = byte >> 4, byte & 15
        entries += [high, low - 16 if low >= 8 else low]
    return torch.tensor(entries)
