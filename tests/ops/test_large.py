"""More than 2 ** 31 elements, if there is enough memory: indices are 64-bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest
import torch

from anyaccel import ops

from .conftest import load

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = 1 << 16
ROWS = (1 << 31) // COLUMNS + 2
NEEDS = 2 * 2 * ROWS * COLUMNS + (2 << 30)


@pytest.mark.skipif(psutil.virtual_memory().available < NEEDS, reason="not enough memory for 2 ** 31 elements twice")
def test_the_last_row_is_reached() -> None:
    op = load("cpu", "RMSNormBuilder").functions
    x = torch.zeros(ROWS, COLUMNS, dtype=torch.bfloat16)  # its pages do not exist until they are written
    x[-1] = torch.randn(COLUMNS)
    y = op.rms_norm(x, torch.ones(COLUMNS, dtype=torch.bfloat16))
    assert y.numel() > 1 << 31
    assert (y[:2] == 0).all()
    expected = torch.nn.functional.rms_norm(x[-1].float(), (COLUMNS,), eps=1e-6)
    torch.testing.assert_close(y[-1].float(), expected, rtol=1e-2, atol=1e-2)


def test_many_rows_are_added_up_beyond_what_a_float_counts_in_ones() -> None:
    rows = (1 << 24) + 4096
    x = torch.full((rows, 1), 100.0)  # the slope there is 1
    bias = torch.zeros(1, requires_grad=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ops.bias_gelu(x, bias).backward(torch.ones(1).expand(rows, 1))
    finally:
        torch.set_num_threads(threads)
    assert bias.grad is not None
    assert bias.grad.item() == rows


EMPTY_BUT_HUGE = torch.empty(0).as_strided((0, 1 << 62, 4), (0, 0, 0))


@pytest.mark.parametrize(
    "call",
    [
        lambda: ops.swiglu(EMPTY_BUT_HUGE, EMPTY_BUT_HUGE),
        lambda: ops.quantize(EMPTY_BUT_HUGE, 1),
        lambda: ops.rms_norm(EMPTY_BUT_HUGE, torch.ones(4)),
    ],
)
def test_dimensions_whose_product_overflows_are_refused_though_there_are_no_elements(
    call: Callable[[], object],
) -> None:
    with pytest.raises(
        RuntimeError, match=r"got the shape \(0, 4611686018427387904, 4\); the product .* is 2\^63 or more"
    ):
        call()


def test_a_result_that_no_memory_holds_is_refused_with_its_shape() -> None:
    with pytest.raises(
        RuntimeError, match=r"got the shape \(1125899906842624, 2\) of float32; .*does not have enough memory"
    ):
        ops.quantize(torch.empty(0, 4), 1 << 50, symmetric=False)
