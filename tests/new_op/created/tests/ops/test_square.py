"""The op `square` against torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anyaccel import ops

from .compare import DTYPES, SHAPES, close, normal, opcheck

BUILDER = "SquareBuilder"


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_agrees_with_the_reference(op: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = normal(*shape, dtype=dtype, device=op.device).requires_grad_()
    exact = x.detach().double().requires_grad_()
    y, expected = op.functions.square(x), exact**2
    close(y, expected)
    grad = normal(*shape, dtype=dtype, device=op.device, seed=1)
    y.backward(grad)
    expected.backward(grad.double())
    close(x.grad, exact.grad, 2)


def test_the_front_is_the_op_and_torch_finds_nothing_wrong_with_it() -> None:
    x = torch.randn(3, 5, requires_grad=True)
    assert torch.equal(ops.square(x), x * x)
    opcheck(torch.ops.anyaccel.square.default, (x,))
    assert torch.autograd.gradcheck(ops.square, (x.detach().double().requires_grad_(),))
