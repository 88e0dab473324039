"""The tolerance between a result and its float64 reference."""

from __future__ import annotations

import warnings
from typing import Any

import torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 4e-6, torch.bfloat16: 1e-2, torch.float16: 1.5e-3}
"""Relative to the largest magnitude: a few units in the last place of the dtype."""
SHAPES = [(1, 1), (3, 1), (5, 7), (2, 3, 131), (64, 257), (7, 1024), (1, 131_072), (600, 24), (0, 16), (2, 0, 5)]
"""Rows of 1 to 131 072, odd and prime, short ones that share a GPU's blocks, and empty ones."""


def close(actual: torch.Tensor, expected: torch.Tensor, factor: float = 1.0) -> None:
    """Compare a result with a float64 reference, relative to the reference's largest magnitude."""
    assert actual.shape == expected.shape
    if actual.numel() == 0:
        return
    tolerance = TOLERANCE[actual.dtype] * factor
    actual, expected = (tensor.detach().cpu().double() for tensor in (actual, expected))
    finite = expected[expected.isfinite()]
    largest = max(1.0, finite.abs().max().item() if finite.numel() else 1.0)
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * largest, equal_nan=True)


def normal(*shape: int, dtype: torch.dtype, device: str, seed: int = 0) -> torch.Tensor:
    """Return normal random numbers, the same on every device."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(device, dtype)


def opcheck(op: Any, arguments: tuple[Any, ...], options: dict[str, Any] | None = None) -> None:
    """Run torch's checks of an op's schema, fake and gradient."""
    with warnings.catch_warnings():
        # torch 2.14's own check reads the gradients of copies, which are not leaves
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
        torch.library.opcheck(op, arguments, options)
