"""The op `activations` against its reference, on every implementation available here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from .activations_reference import gelu, silu
from .compare import DTYPES, SHAPES, close, normal, opcheck

if TYPE_CHECKING:
    from collections.abc import Callable

BUILDER = "ActivationsBuilder"
GATED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "swiglu": (lambda f, gate, up: f.swiglu(gate, up), lambda gate, up: silu(gate) * up),
    "geglu": (lambda f, gate, up: f.geglu(gate, up), lambda gate, up: gelu(gate, "none") * up),
    "geglu by tanh": (lambda f, gate, up: f.geglu(gate, up, "tanh"), lambda gate, up: gelu(gate, "tanh") * up),
}


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", GATED)
def test_gated_units_agree_with_the_reference(op: Any, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    call, reference = GATED[name]
    arguments = [normal(*shape, dtype=dtype, device=op.device, seed=seed).requires_grad_() for seed in range(2)]
    grad = normal(*shape, dtype=dtype, device=op.device, seed=2)
    exact = [tensor.detach().double().requires_grad_() for tensor in arguments]
    expected = reference(*exact)
    y = call(op.functions, *arguments)
    close(y, expected)
    y.backward(grad)
    expected.backward(grad.double())
    for mine, theirs in zip(arguments, exact, strict=True):
        close(mine.grad, theirs.grad)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_bias_gelu_agrees_with_the_reference(
    op: Any, approximate: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = normal(*shape, dtype=dtype, device=op.device).requires_grad_()
    bias = normal(shape[-1], dtype=dtype, device=op.device, seed=1).requires_grad_()
    grad = normal(*shape, dtype=dtype, device=op.device, seed=2)
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, bias)]
    expected = gelu(exact[0] + exact[1], approximate)
    y = op.functions.bias_gelu(x, bias, approximate)
    close(y, expected)
    y.backward(grad)
    expected.backward(grad.double())
    close(x.grad, exact[0].grad)
    close(bias.grad, exact[1].grad, 2)


def test_halves_of_one_tensor_are_read_where_they_lie(op: Any) -> None:
    both = normal(3, 5, 14, dtype=torch.float32, device=op.device).requires_grad_()
    y = op.functions.swiglu(*both.chunk(2, -1))
    exact = both.detach().double().requires_grad_()
    gate, up = exact.chunk(2, -1)
    close(y, silu(gate) * up)
    y.sum().backward()
    (silu(gate) * up).sum().backward()
    close(both.grad, exact.grad)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.transpose(0, 1),
        lambda t: t.transpose(0, 2),
        lambda t: t[:, ::2],
        lambda t: t[..., ::2],
        lambda t: t[:1].expand(3, 4, 6),
    ],
)
def test_every_layout_is_taken(op: Any, view: Any) -> None:
    gate, up = (view(normal(3, 4, 6, dtype=torch.float32, device=op.device, seed=seed)) for seed in range(2))
    close(op.functions.swiglu(gate, up), silu(gate.double()) * up.double())
    close(op.functions.geglu(gate, up.contiguous()), gelu(gate.double(), "none") * up.double())


def test_extremes(op: Any) -> None:
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([-inf, -1e4, -100.0, -20.0, 0.0, 1e-40, 20.0, 100.0, 1e4, inf, nan], device=op.device)
    one = torch.ones_like(x)
    for y, expected in (
        (op.functions.swiglu(x, one), torch.nn.functional.silu(x.double())),
        (op.functions.geglu(x, one), torch.nn.functional.gelu(x.double())),
        (op.functions.geglu(x, one, "tanh"), torch.nn.functional.gelu(x.double(), approximate="tanh")),
    ):
        torch.testing.assert_close(y.cpu()[1:].double(), expected.cpu()[1:], rtol=1e-5, atol=1e-7, equal_nan=True)
        assert y[0].isnan() or y[0] == 0  # torch's own versions differ there


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f, x: f.swiglu(x, x[:, :3]), r"swiglu failed: got up of shape \(2, 3\); expected \(2, 4\), as gate is"),
        (lambda f, x: f.swiglu(x, x.half()), r"swiglu failed: got up of float16; expected float32"),
        (lambda f, x: f.geglu(x.int(), x.int()), r"geglu failed: got gate of int32"),
        (lambda f, x: f.bias_gelu(x, x[0, :3]), r"bias_gelu failed: got bias of shape \(3\); expected \(4\)"),
        (lambda f, x: f.bias_gelu(x, x[0].double()), r"bias_gelu failed: got bias of float64; expected float32"),
    ],
)
def test_wrong_arguments_are_named(op: Any, call: Any, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        call(op.functions, torch.zeros(2, 4, device=op.device))


def test_another_approximation_is_refused(op: Any) -> None:
    x = torch.zeros(2, 4, device=op.device)
    with pytest.raises(ValueError, match="got approximate='erf'; expected 'none' or 'tanh'"):
        op.functions.geglu(x, x, "erf")


def test_gradcheck_opcheck_and_compile(op: Any) -> None:
    if op.name == "cpu":
        gate, up = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
        bias = torch.randn(4, dtype=torch.float64, requires_grad=True)
        for call, _ in GATED.values():
            assert torch.autograd.gradcheck(lambda g, u, call=call: call(op.functions, g, u), (gate, up))
        for approximate in ("none", "tanh"):
            assert torch.autograd.gradcheck(lambda x, b, a=approximate: op.functions.bias_gelu(x, b, a), (gate, bias))
    space = op.space
    gate, up = (torch.randn(3, 4, device=op.device, requires_grad=True) for _ in range(2))
    opcheck(space.swiglu.default, (gate, up))
    opcheck(space.geglu.default, (gate, up, True))
    opcheck(space.bias_gelu.default, (gate, torch.randn(4, device=op.device, requires_grad=True), False))
    y = torch.compile(op.functions.swiglu, fullgraph=True, backend="aot_eager")(gate, up)
    torch.testing.assert_close(y, op.functions.swiglu(gate, up))
    y.sum().backward()
    assert gate.grad is not None


@pytest.mark.parametrize("shape", [(2, 3, 8), (5, 1000, 257)])
def test_rows_of_stride_zero_are_read_where_they_lie(op: Any, shape: tuple[int, ...]) -> None:
    gate = torch.full(shape, 20.0, device=op.device)
    up = torch.zeros(shape[0], 1, shape[2], device=op.device).expand(shape)
    assert (op.functions.swiglu(gate, up) == 0).all()
    numbers = normal(shape[0], 1, shape[2], dtype=torch.float32, device=op.device).expand(shape)
    close(op.functions.geglu(numbers, gate), gelu(numbers.double(), "none") * 20)
    everywhere = normal(1, 1, shape[2], dtype=torch.float32, device=op.device).expand(shape)
    close(op.functions.swiglu(everywhere, gate), silu(everywhere.double()) * 20)
