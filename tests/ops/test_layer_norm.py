"""The op `layer_norm` against its reference, on every implementation available here."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .compare import DTYPES, SHAPES, close, normal, opcheck
from .layer_norm_reference import layer_norm

BUILDER = "LayerNormBuilder"
EPS = 1e-5


def _arguments(op: Any, shape: tuple[int, ...], dtype: torch.dtype, weights: torch.dtype) -> list[torch.Tensor]:
    x = normal(*shape, dtype=dtype, device=op.device)
    weight = 1 + normal(shape[-1], dtype=weights, device=op.device, seed=1)
    bias = normal(shape[-1], dtype=weights, device=op.device, seed=2)
    return [x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()]


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_and_backward_agree_with_the_reference(op: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for weights in {dtype, torch.float32}:
        arguments = _arguments(op, shape, dtype, weights)
        grad = normal(*shape, dtype=dtype, device=op.device, seed=3)
        exact = [tensor.detach().double().requires_grad_() for tensor in arguments]
        expected = layer_norm(*exact, EPS)
        y = op.functions.layer_norm(*arguments, EPS)
        close(y, expected)
        y.backward(grad)
        expected.backward(grad.double())
        for mine, theirs in zip(arguments, exact, strict=True):
            if shape[-1] > 1:  # a row of one element divides rounding errors by sqrt(eps)
                close(mine.grad, theirs.grad, 2)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_residual_is_added_first_and_both_results_carry_gradients(op: Any, dtype: torch.dtype) -> None:
    x, weight, bias = _arguments(op, (5, 131), dtype, dtype)
    residual = normal(5, 131, dtype=dtype, device=op.device, seed=4).requires_grad_()
    y, total = op.functions.add_layer_norm(x, residual, weight, bias, EPS)
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, residual, weight, bias)]
    exact_total = exact[0] + exact[1]
    rounded = exact_total + (total.detach().double() - exact_total.detach())
    expected = layer_norm(rounded, *exact[2:], EPS)
    close(total, exact_total)
    close(y, expected)
    ((y * y).sum() + (total * 2).sum()).backward()
    ((expected * expected).sum() + (exact_total * 2).sum()).backward()
    for mine, theirs in zip((x, residual, weight, bias), exact, strict=True):
        close(mine.grad, theirs.grad, 2)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("columns", [8, 264, 1024, 1032])
def test_rows_in_tiles_agree_kept_or_not(op: Any, columns: int, dtype: torch.dtype) -> None:
    """A CUDA block keeps a row in registers if it fits: up to 32 elements per thread, in tiles of 16 bytes."""
    for weights in (dtype, torch.float32, dtype):  # once for each block size
        leaves = _arguments(op, (2, columns), dtype, weights)
        grad, residual = (normal(2, columns, dtype=dtype, device=op.device, seed=seed) for seed in (3, 4))
        exact = [tensor.detach().double().requires_grad_() for tensor in leaves]
        y, expected = op.functions.layer_norm(*leaves, EPS), layer_norm(*exact, EPS)
        close(y, expected)
        y.backward(grad)
        expected.backward(grad.double())
        for mine, theirs in zip(leaves, exact, strict=True):
            close(mine.grad, theirs.grad, 2)
        x, weight, bias = (tensor.detach() for tensor in leaves)
        added, total = op.functions.add_layer_norm(x, residual, weight, bias, EPS)
        close(total, x.double() + residual.double())
        close(added, layer_norm(total.double(), weight.double(), bias.double(), EPS))


def test_the_gradient_of_both_addends_is_one_tensor_and_no_copy(op: Any) -> None:
    x, weight, bias = _arguments(op, (5, 7), torch.float32, torch.float32)
    residual = torch.zeros_like(x, requires_grad=True)
    y = op.functions.add_layer_norm(x, residual, weight, bias, EPS)[0]
    both = torch.autograd.grad(y.square().sum(), (x, residual), retain_graph=True)
    assert both[0].data_ptr() == both[1].data_ptr()  # like torch.add
    y.square().sum().backward()
    assert x.grad.data_ptr() != residual.grad.data_ptr()
    assert torch.equal(x.grad, residual.grad)


def test_a_large_mean_does_not_cancel(op: Any) -> None:
    x = 1e4 + normal(3, 1024, dtype=torch.float32, device=op.device)
    ones, zeros = torch.ones(1024, device=op.device), torch.zeros(1024, device=op.device)
    close(op.functions.layer_norm(x, ones, zeros), layer_norm(x.double(), ones.double(), zeros.double(), EPS), 1e3)


@pytest.mark.parametrize(("value", "columns"), [(1.3, 4096), (100.1, 768), (1000.1, 1000), (1e6, 770), (-0.1, 8193)])
def test_rows_of_one_value_become_the_bias(op: Any, value: float, columns: int) -> None:
    """The rounding of their mean is larger than their deviation from it."""
    x = torch.full((3, columns), value, device=op.device)
    x[1, 0] = value * (1 + 2**-20)
    weight, bias = torch.ones(columns, device=op.device), torch.full((columns,), 0.5, device=op.device)
    y = op.functions.layer_norm(x, weight, bias, eps=1e-5)
    expected = torch.nn.functional.layer_norm(x.double(), (columns,), eps=1e-5) + 0.5
    if abs(value) < 1e4:  # float32 has no number near enough to the mean of larger ones
        torch.testing.assert_close(y.double(), expected, rtol=2e-3, atol=2e-3)
    assert bool((y[[0, 2]] == 0.5).all())


def test_strided_inputs_are_taken(op: Any) -> None:
    x = normal(131, 6, dtype=torch.float32, device=op.device).t()
    weight, bias = torch.ones(1, device=op.device).expand(131), torch.zeros(262, device=op.device)[::2]
    close(op.functions.layer_norm(x, weight, bias), layer_norm(x.double(), weight.double(), bias.double(), EPS))


def test_what_is_not_finite_stays_in_its_row(op: Any) -> None:
    x = normal(3, 37, dtype=torch.float32, device=op.device)
    x[1, 3], x[2, 5] = torch.nan, torch.inf
    y = op.functions.layer_norm(x, torch.ones(37, device=op.device), torch.zeros(37, device=op.device))
    assert y[0].isfinite().all()
    assert y[1:].isnan().all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, w, b: (x, w[:-1], b), r"got weight of shape \(6\); expected \(7\)"),
        (lambda x, w, b: (x, w, b[:-1]), r"got bias of shape \(6\); expected \(7\), as weight is"),
        (lambda x, w, b: (x, w, b.half()), r"got bias of float16; expected float32"),
        (lambda x, w, b: (x.int(), w, b), r"got x of int32; expected float32"),
    ],
)
def test_wrong_arguments_are_named(op: Any, change: Any, said: str) -> None:
    arguments = torch.randn(3, 7, device=op.device), torch.ones(7, device=op.device), torch.zeros(7, device=op.device)
    with pytest.raises(RuntimeError, match=f"layer_norm failed: {said}.*Fix: "):
        op.functions.layer_norm(*change(*arguments))


def test_gradcheck_opcheck_and_compile(op: Any) -> None:
    if op.name == "cpu":
        x = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
        weight, bias = (torch.randn(7, dtype=torch.float64, requires_grad=True) for _ in range(2))
        assert torch.autograd.gradcheck(op.functions.layer_norm, (x, weight, bias))
        residual = torch.randn_like(x, requires_grad=True)
        assert torch.autograd.gradcheck(op.functions.add_layer_norm, (x, residual, weight, bias))
    space = op.space
    arguments = _arguments(op, (3, 7), torch.float32, torch.float32)
    opcheck(space.layer_norm.default, (*arguments, EPS))
    compiled = torch.compile(op.functions.layer_norm, fullgraph=True, backend="aot_eager")
    y = compiled(*arguments)
    torch.testing.assert_close(y, op.functions.layer_norm(*arguments))
    y.sum().backward()
    assert arguments[2].grad.tolist() == [3.0] * 7
