"""The op `softmax` against its reference, on every implementation available here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from .compare import DTYPES, SHAPES, close, normal, opcheck
from .softmax_reference import causal_softmax, masked_softmax

if TYPE_CHECKING:
    from collections.abc import Callable

BUILDER = "SoftmaxBuilder"
SCALE = 0.7


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
def test_masked_agrees_with_the_reference(op: Any, shape: tuple[int, ...], dtype: torch.dtype, masked: bool) -> None:
    x = normal(*shape, dtype=dtype, device=op.device).requires_grad_()
    grad = normal(*shape, dtype=dtype, device=op.device, seed=1)
    mask = (normal(*shape, dtype=torch.float32, device=op.device, seed=2) > 0.5) if masked else None
    exact = x.detach().double().requires_grad_()
    expected = masked_softmax(exact, mask, SCALE)
    y = op.functions.scaled_masked_softmax(x, mask, SCALE)
    close(y, expected)
    y.backward(grad)
    expected.backward(grad.double())
    close(x.grad, exact.grad)
    if mask is not None:
        assert (y[mask] == 0).all()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (2, 5, 131, 131), (3, 4, 9), (0, 3, 3), (2, 513, 513)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_causal_agrees_with_the_reference(op: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = normal(*shape, dtype=dtype, device=op.device).requires_grad_()
    grad = normal(*shape, dtype=dtype, device=op.device, seed=1)
    exact = x.detach().double().requires_grad_()
    expected = causal_softmax(exact, SCALE)
    y = op.functions.scaled_upper_triang_masked_softmax(x, SCALE)
    close(y, expected)
    y.backward(grad)
    expected.backward(grad.double())
    close(x.grad, exact.grad)


@pytest.mark.parametrize("mask_shape", [(2, 1, 1, 9), (1, 1, 5, 9), (2, 3, 5, 1), (9,), (5, 9), (1, 3, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_masks_expand(op: Any, mask_shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = normal(2, 3, 5, 9, dtype=torch.float32, device=op.device)
    mask = (normal(*mask_shape, dtype=torch.float32, device=op.device, seed=1) > 0).to(dtype)
    close(op.functions.scaled_masked_softmax(x, mask, SCALE), masked_softmax(x.double(), mask, SCALE))


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(lambda mask: mask.mT.contiguous().mT, id="columns apart"),
        pytest.param(lambda mask: mask.repeat_interleave(3, -1)[..., ::3], id="every third"),
        pytest.param(lambda mask: mask[..., :1].expand(mask.shape), id="one for a row, expanded"),
        pytest.param(lambda mask: mask.flip(-1).flip(-1), id="dense"),
    ],
)
def test_masks_lie_as_they_like(op: Any, layout: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = normal(2, 3, 5, 9, dtype=torch.float32, device=op.device)
    mask = layout(normal(2, 3, 5, 9, dtype=torch.float32, device=op.device, seed=1) > 0)
    close(op.functions.scaled_masked_softmax(x, mask, SCALE), masked_softmax(x.double(), mask, SCALE))


def test_a_row_that_is_hidden_altogether_is_zero_and_so_is_its_gradient(op: Any) -> None:
    x = torch.randn(2, 5, device=op.device, requires_grad=True)
    mask = torch.tensor([[True], [False]], device=op.device)
    y = op.functions.scaled_masked_softmax(x, mask)
    assert y[0].tolist() == [0.0] * 5
    assert y[1].sum().item() == pytest.approx(1)
    (y * torch.arange(5.0, device=op.device)).sum().backward()
    assert x.grad[0].tolist() == [0.0] * 5


def test_extremes(op: Any) -> None:
    inf, nan = torch.inf, torch.nan
    x = torch.tensor(
        [[1e4, -1e4, 1e4], [-inf, 0.0, -inf], [-inf, -inf, -inf], [nan, 0, 1], [nan, nan, nan], [-1e30, -1e30, 1e-40]]
    )
    y = op.functions.scaled_masked_softmax(x.to(op.device)).cpu()
    assert y[0].tolist() == [0.5, 0.0, 0.5]
    assert y[1].tolist() == [0.0, 1.0, 0.0]
    assert y[2].tolist() == [0.0, 0.0, 0.0]
    assert y[3:5].isnan().all()
    assert y[5].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("scale", [80**-0.5, 0.7, -0.3, 1e-5])
@pytest.mark.parametrize("columns", [4, 16, 513])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_may_be_as_large_as_their_dtype(op: Any, dtype: torch.dtype, columns: int, scale: float) -> None:
    """A fused multiplication and subtraction would leave what rounding took from the largest score."""
    largest = torch.finfo(dtype).max
    some = torch.tensor([largest, largest / 3, largest / 3e3, 1e4], device=op.device).to(dtype)
    rows = [one.expand(columns) for value in some for one in (value, -value)]
    rows += [torch.where(torch.arange(columns, device=op.device) % 3 == 0, row, row / 2) for row in rows]
    x = torch.stack(rows).expand(columns, -1, -1).contiguous()
    exact = (x.double() if dtype == torch.float64 else x.float()).mul(scale).requires_grad_()
    expected = torch.softmax(exact, -1)
    for mask in (None, torch.zeros(x.shape, dtype=torch.bool, device=op.device)):
        scores = x.clone().requires_grad_()
        y = op.functions.scaled_masked_softmax(scores, mask, scale)
        close(y, expected.detach().double())
        y.sum().backward()
        assert scores.grad.isfinite().all()
    causal = op.functions.scaled_upper_triang_masked_softmax(x[:, :1].expand(-1, columns, -1).contiguous()[:4], scale)
    assert causal.isfinite().all()
    close(causal.sum(-1), torch.ones(causal.shape[:-1], dtype=torch.float64, device=op.device))


@pytest.mark.parametrize("scale", [2e38, -3e38, 1.0, -1.0, 0.0, 1e-40])
def test_the_scale_may_be_anything(op: Any, scale: float) -> None:
    x = torch.tensor([[0.0, 0.0], [1e-38, -1e-38], [3e-39, 2e-39]], device=op.device)
    expected = torch.softmax(x.cpu().double() * scale, -1)
    assert torch.allclose(op.functions.scaled_masked_softmax(x, None, scale).cpu().double(), expected, atol=2e-2)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("columns", [16, 264, 512, 520])
def test_rows_in_tiles_agree_kept_or_not(op: Any, columns: int, dtype: torch.dtype) -> None:
    """A CUDA block keeps a row in registers if it fits: up to 16 elements per thread, in tiles of 16 bytes."""
    x = normal(1, 1, 16, columns, dtype=dtype, device=op.device)
    grad = normal(*x.shape, dtype=dtype, device=op.device, seed=1)
    hidden = normal(*x.shape, dtype=torch.float32, device=op.device, seed=2) > 0.5
    for mask in (None, hidden, hidden):  # once for each block size
        scores, exact = x.clone().requires_grad_(), x.double().requires_grad_()
        y, expected = op.functions.scaled_masked_softmax(scores, mask, SCALE), masked_softmax(exact, mask, SCALE)
        close(y, expected)
        y.backward(grad)
        expected.backward(grad.double())
        close(scores.grad, exact.grad)
        # the last visible score of a row is anywhere in a tile
        close(op.functions.scaled_upper_triang_masked_softmax(x, SCALE), causal_softmax(x.double(), SCALE))


def test_extremes_of_rows_in_tiles(op: Any) -> None:
    """Scores after the last visible one, in its tile, have no effect."""
    inf, nan = torch.inf, torch.nan
    x = torch.zeros(8, 8, device=op.device)
    x[0, 1:], x[1, 2:], x[2, :3], x[3, 4:], x[4, 2], x[5, :6], x[6, :7] = nan, inf, -inf, nan, nan, nan, -inf
    x[6, 7] = nan
    for _ in range(3):
        y = op.functions.scaled_upper_triang_masked_softmax(x).cpu()
        assert y[0].tolist() == [1.0] + [0.0] * 7
        assert y[1].tolist() == [0.5, 0.5] + [0.0] * 6
        assert y[2].tolist() == [0.0] * 8
        assert y[3].tolist() == [0.25] * 4 + [0.0] * 4
        assert y[4, :5].isnan().all()
        assert y[5, :6].isnan().all()
        assert (y[4, 5:] == 0).all()
        assert (y[5, 6:] == 0).all()
        assert y[6].tolist() == [0.0] * 8
        close(y[7], torch.full((8,), 0.125, dtype=torch.float64))


def test_strided_scores_are_taken(op: Any) -> None:
    x = normal(9, 5, dtype=torch.float32, device=op.device).t()
    close(op.functions.scaled_masked_softmax(x), masked_softmax(x.double(), None, 1.0))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f, x: f.scaled_masked_softmax(x[None]), "got x of shape .* expected at most 4 dimensions"),
        (lambda f, x: f.scaled_masked_softmax(x, x), "got mask of float32; expected bool or uint8"),
        (lambda f, x: f.scaled_masked_softmax(x, x[..., :2] > 0), r"got mask of shape .* expected one that expands"),
        (lambda f, x: f.scaled_masked_softmax(x, (x > 0)[None]), r"got mask of shape .* expected one that expands"),
        (lambda f, x: f.scaled_upper_triang_masked_softmax(x[..., :2]), "got x of shape .* as many columns as rows"),
        (lambda f, x: f.scaled_upper_triang_masked_softmax(x[0, 0, 0]), "expected 2 dimensions or more"),
        (lambda f, x: f.scaled_masked_softmax(x.long()), "got x of int64"),
    ],
)
def test_wrong_arguments_are_named(op: Any, call: Any, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        call(op.functions, torch.zeros(2, 3, 4, 4, device=op.device))


def test_gradcheck_opcheck_and_compile(op: Any) -> None:
    if op.name == "cpu":
        x = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: op.functions.scaled_masked_softmax(x, x > 0.5, 0.3), (x,))
        assert torch.autograd.gradcheck(lambda x: op.functions.scaled_upper_triang_masked_softmax(x, 0.3), (x,))
    space = op.space
    x = torch.randn(2, 3, 3, device=op.device, requires_grad=True)
    opcheck(space.scaled_masked_softmax.default, (x, x > 0, 0.5))
    opcheck(space.scaled_upper_triang_masked_softmax.default, (x, 0.5))
    compiled = torch.compile(op.functions.scaled_upper_triang_masked_softmax, fullgraph=True, backend="aot_eager")
    y = compiled(x, 0.5)
    torch.testing.assert_close(y, op.functions.scaled_upper_triang_masked_softmax(x, 0.5))
    y.square().sum().backward()
    assert x.grad is not None
