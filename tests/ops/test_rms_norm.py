"""The op `rms_norm` against its reference, on every implementation available here."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .compare import DTYPES, SHAPES, close, normal, opcheck
from .rms_norm_reference import rms_norm

BUILDER = "RMSNormBuilder"
EPS = 1e-6


def _arguments(op: Any, shape: tuple[int, ...], dtype: torch.dtype, weights: torch.dtype) -> list[torch.Tensor]:
    x = normal(*shape, dtype=dtype, device=op.device)
    weight = 1 + normal(shape[-1], dtype=weights, device=op.device, seed=1)
    return [x.requires_grad_(), weight.requires_grad_()]


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_and_backward_agree_with_the_reference(op: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for weights in {dtype, torch.float32}:
        x, weight = _arguments(op, shape, dtype, weights)
        grad = normal(*shape, dtype=dtype, device=op.device, seed=2)
        exact = [tensor.detach().double().requires_grad_() for tensor in (x, weight)]
        expected = rms_norm(*exact, EPS)
        y = op.functions.rms_norm(x, weight, EPS)
        close(y, expected)
        y.backward(grad)
        expected.backward(grad.double())
        close(x.grad, exact[0].grad)
        close(weight.grad, exact[1].grad, 2)
        assert weight.grad.dtype == weights


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_residual_is_added_first_and_both_results_carry_gradients(op: Any, dtype: torch.dtype) -> None:
    x, weight = _arguments(op, (5, 131), dtype, dtype)
    residual = normal(5, 131, dtype=dtype, device=op.device, seed=3).requires_grad_()
    y, total = op.functions.add_rms_norm(x, residual, weight, EPS)
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, residual, weight)]
    exact_total = exact[0] + exact[1]
    rounded = exact_total + (total.detach().double() - exact_total.detach())  # the rounded sum is normalised
    expected = rms_norm(rounded, exact[2], EPS)
    close(total, exact_total)
    close(y, expected)
    (y.sum() + (total * 2).sum()).backward()
    (expected.sum() + (exact_total * 2).sum()).backward()
    for mine, theirs in zip((x, residual, weight), exact, strict=True):
        close(mine.grad, theirs.grad, 2)


def test_the_gradient_of_both_addends_is_one_tensor_and_no_copy(op: Any) -> None:
    x, weight = _arguments(op, (5, 7), torch.float32, torch.float32)
    residual = torch.zeros_like(x, requires_grad=True)
    y = op.functions.add_rms_norm(x, residual, weight, EPS)[0]
    both = torch.autograd.grad(y.square().sum(), (x, residual), retain_graph=True)
    assert both[0].data_ptr() == both[1].data_ptr()  # like torch.add
    y.square().sum().backward()
    assert x.grad.data_ptr() != residual.grad.data_ptr()
    assert torch.equal(x.grad, residual.grad)


def test_strided_and_expanded_inputs_are_taken(op: Any) -> None:
    x = normal(131, 6, dtype=torch.float32, device=op.device).t()
    weight = torch.ones(1, device=op.device).expand(131)
    close(op.functions.rms_norm(x, weight, EPS), rms_norm(x.double(), weight.double(), EPS))
    expanded = x[:1].expand(6, 131)
    close(op.functions.rms_norm(expanded, weight, EPS), rms_norm(expanded.double(), weight.double(), EPS))


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("columns", [8, 264, 1024, 1032])
def test_rows_in_tiles_agree_kept_or_not(op: Any, columns: int, dtype: torch.dtype) -> None:
    """A CUDA block keeps a row in registers if it fits: up to 32 elements per thread, in tiles of 16 bytes."""
    x, residual, grad = (normal(2, columns, dtype=dtype, device=op.device, seed=seed) for seed in range(3))
    for weights in (dtype, torch.float32, dtype):  # once for each block size
        weight = 1 + normal(columns, dtype=weights, device=op.device, seed=3)
        leaves = [tensor.clone().requires_grad_() for tensor in (x, weight)]
        exact = [tensor.detach().double().requires_grad_() for tensor in leaves]
        y, expected = op.functions.rms_norm(*leaves, EPS), rms_norm(*exact, EPS)
        close(y, expected)
        y.backward(grad)
        expected.backward(grad.double())
        for mine, theirs in zip(leaves, exact, strict=True):
            close(mine.grad, theirs.grad, 2)
        added, total = op.functions.add_rms_norm(x, residual, weight, EPS)
        close(total, x.double() + residual.double())
        close(added, rms_norm(total.double(), weight.double(), EPS))


def test_misaligned_memory_is_taken(op: Any) -> None:
    x = normal(4 * 131 + 1, dtype=torch.float16, device=op.device)[1:].view(4, 131)
    weight = torch.ones(132, dtype=torch.float16, device=op.device)[1:]
    close(op.functions.rms_norm(x, weight, EPS), rms_norm(x.double(), weight.double(), EPS))


def test_what_is_not_finite_stays_in_its_row(op: Any) -> None:
    x = normal(4, 37, dtype=torch.float32, device=op.device)
    x[1, 3], x[2, 5], x[3] = torch.nan, torch.inf, 1e-40
    weight = torch.ones(37, device=op.device)
    y = op.functions.rms_norm(x, weight, EPS)
    assert y[0].isfinite().all()
    assert y[1].isnan().all()
    assert y[2, 5].isnan()
    assert (y[2, :5] == 0).all()
    close(y[3], rms_norm(x[3].double(), weight.double(), EPS))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, w: (x, w[:-1]), r"got weight of shape \(6\); expected \(7\)"),
        (lambda x, w: (x, w.double()), r"got weight of float64; expected float32"),
        (lambda x, w: (x.long(), w), r"got x of int64; expected float32"),
        (lambda x, w: (x.sum(), w), r"got x of shape \(\); expected 1 dimensions or more"),
    ],
)
def test_wrong_arguments_are_named(op: Any, change: Any, said: str) -> None:
    x, weight = torch.randn(3, 7, device=op.device), torch.ones(7, device=op.device)
    with pytest.raises(RuntimeError, match=f"rms_norm failed: {said}.*Fix: "):
        op.functions.rms_norm(*change(x, weight), EPS)


def test_tensors_of_two_devices_are_refused(op: Any) -> None:
    x, weight = torch.randn(3, 7, device=op.device), torch.ones(7, device="meta")
    with pytest.raises(RuntimeError, match=f"rms_norm failed: got weight on meta; expected {x.device}"):
        op.functions.rms_norm(x, weight)


def test_another_residual_is_refused(op: Any) -> None:
    x, weight = torch.randn(3, 7, device=op.device), torch.ones(7, device=op.device)
    with pytest.raises(RuntimeError, match=r"add_rms_norm failed: got residual of shape \(3, 6\)"):
        op.functions.add_rms_norm(x, x[:, :6], weight)


def test_float64_is_for_gradcheck_on_the_cpu(op: Any) -> None:
    x = torch.randn(3, 7, dtype=torch.float64, requires_grad=True, device=op.device)
    weight = torch.randn(7, dtype=torch.float64, requires_grad=True, device=op.device)
    if op.name != "cpu":
        with pytest.raises(RuntimeError, match="float32, bfloat16 or float16"):
            op.functions.rms_norm(x, weight)
        return
    assert torch.autograd.gradcheck(op.functions.rms_norm, (x, weight))
    assert torch.autograd.gradcheck(op.functions.add_rms_norm, (x, torch.randn_like(x, requires_grad=True), weight))


def test_torch_knows_its_schema_shapes_and_derivative(op: Any) -> None:
    space = op.space
    x, weight = _arguments(op, (3, 7), torch.float32, torch.float32)
    opcheck(space.rms_norm.default, (x, weight, EPS))
    opcheck(space.add_rms_norm.default, (x, x.detach().clone().requires_grad_(), weight, EPS))


def test_it_compiles_without_a_break(op: Any) -> None:
    x, weight = _arguments(op, (3, 7), torch.float32, torch.float32)
    compiled = torch.compile(op.functions.rms_norm, fullgraph=True, backend="aot_eager")
    y = compiled(x, weight, EPS)
    close(y, rms_norm(x.double(), weight.double(), EPS))
    y.sum().backward()
    assert x.grad is not None


def test_under_autocast_the_weight_stays_float32(op: Any) -> None:
    linear = torch.nn.Linear(7, 7, device=op.device)
    weight = torch.ones(7, device=op.device, requires_grad=True)
    with torch.autocast(op.device, dtype=torch.bfloat16):
        y = op.functions.rms_norm(linear(torch.randn(3, 7, device=op.device)), weight)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert weight.grad.dtype == torch.float32
