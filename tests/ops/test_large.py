"""More than 2 ** 31 elements, where memory allows: indices are 64-bit."""

from __future__ import annotations

import psutil
import pytest
import torch

from .conftest import load

COLUMNS = 1 << 16
ROWS = (1 << 31) // COLUMNS + 2
NEEDS = 2 * 2 * ROWS * COLUMNS + (2 << 30)


@pytest.mark.skipif(psutil.virtual_memory().available < NEEDS, reason="not enough memory for 2 ** 31 elements twice")
def test_the_last_row_is_reached() -> None:
    op = load("cpu", "RMSNormBuilder").functions
    x = torch.zeros(ROWS, COLUMNS, dtype=torch.bfloat16)  # whose pages are not there until they are written
    x[-1] = torch.randn(COLUMNS)
    y = op.rms_norm(x, torch.ones(COLUMNS, dtype=torch.bfloat16))
    assert y.numel() > 1 << 31
    assert (y[:2] == 0).all()
    expected = torch.nn.functional.rms_norm(x[-1].float(), (COLUMNS,), eps=1e-6)
    torch.testing.assert_close(y[-1].float(), expected, rtol=1e-2, atol=1e-2)
