"""The op `rotary_embedding` against its reference, on every implementation available here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from anyaccel.op_builder.kernel_loader import RotaryEmbeddingLoader

from .compare import DTYPES, close, normal, opcheck
from .conftest import load
from .rotary_embedding_reference import rotary_embedding

BUILDER = "RotaryEmbeddingBuilder"
SHAPES = [
    (1, 1, 1, 2, 1),
    (2, 5, 3, 8, 4),
    (1, 7, 2, 131, 65),
    (3, 4, 2, 10, 3),
    (2, 3, 4, 6, 0),
    (0, 3, 2, 4, 2),
    (2, 3, 2, 40, 16),
]
SHAPES += [(1, 64, 5, 24, 8)]  # groups of a device take two heads; the last one takes one
"""(batch, positions, heads, head_dim, pairs); some leave elements unrotated."""


def _tables(positions: int, pairs: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    angles = normal(positions, pairs, dtype=torch.float32, device=device, seed=5)
    return angles.cos(), angles.sin()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("inplace", [False, True])
def test_forward_and_backward_agree_with_the_reference(
    op: Any, shape: tuple[int, ...], dtype: torch.dtype, interleaved: bool, inplace: bool
) -> None:
    leaf = normal(*shape[:4], dtype=dtype, device=op.device).requires_grad_()
    cos, sin = _tables(shape[1], shape[4], op.device)
    grad = normal(*shape[:4], dtype=dtype, device=op.device, seed=1)
    exact = leaf.detach().double().requires_grad_()
    expected = rotary_embedding(exact, cos.double(), sin.double(), interleaved)
    x = leaf.clone()
    y = op.functions.rotary_embedding(x, cos, sin, interleaved=interleaved, inplace=inplace)
    close(y, expected)
    assert (y is x) == inplace
    y.backward(grad)
    expected.backward(grad.double())
    close(leaf.grad, exact.grad)


@pytest.mark.parametrize("view", [lambda t: t.transpose(1, 2), lambda t: t.transpose(2, 3), lambda t: t[:, :, ::2]])
@pytest.mark.parametrize("inplace", [False, True])
def test_every_layout_is_taken(op: Any, view: Any, inplace: bool) -> None:
    whole = normal(2, 4, 6, 8, dtype=torch.float32, device=op.device)
    before, x = whole.clone(), view(whole)
    cos, sin = _tables(x.shape[1], x.shape[3] // 2, op.device)
    expected = rotary_embedding(x.double(), cos.double(), sin.double(), False)
    close(op.functions.rotary_embedding(x, cos, sin, inplace=inplace), expected)
    close(x, expected if inplace else view(before).double())


@pytest.mark.parametrize("dtype", DTYPES)
def test_misaligned_memory_agrees_with_the_reference(op: Any, dtype: torch.dtype) -> None:
    x = normal(2 * 3 * 2 * 16 + 1, dtype=dtype, device=op.device)[1:].view(2, 3, 2, 16)
    cos, sin = _tables(3, 8, op.device)
    for interleaved in (False, True):
        expected = rotary_embedding(x.double(), cos.double(), sin.double(), interleaved)
        close(op.functions.rotary_embedding(x, cos, sin, interleaved=interleaved), expected)


def test_tables_of_another_precision_are_taken(op: Any) -> None:
    x = normal(1, 3, 2, 4, dtype=torch.bfloat16, device=op.device)
    cos, sin = _tables(3, 2, op.device)
    expected = op.functions.rotary_embedding(x, cos.bfloat16().float(), sin.bfloat16().float())
    assert torch.equal(op.functions.rotary_embedding(x, cos.bfloat16(), sin.bfloat16()), expected)


def test_in_place_tells_autograd(op: Any) -> None:
    x = torch.ones(1, 1, 1, 2, device=op.device, requires_grad=True) * 2
    squared = x * x  # needs x
    cos, sin = _tables(1, 1, op.device)
    op.functions.rotary_embedding(x, cos, sin, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.sum().backward()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, c, s: (x[0], c, s), r"got x of shape \(3, 2, 4\); expected \(batch, positions, heads, head_dim\)"),
        (lambda x, c, s: (x, c[:2], s[:2]), r"got cos of shape \(2, 2\); expected \(3, pairs\)"),
        (lambda x, c, s: (x[..., :3], c, s), r"got cos of shape \(3, 2\); expected .* at most x's 3 columns"),
        (lambda x, c, s: (x, c, s[:, :1]), r"got sin of shape \(3, 1\); expected \(3, 2\), as cos is"),
        (lambda x, c, s: (x.int(), c, s), r"got x of int32"),
    ],
)
@pytest.mark.parametrize("inplace", [False, True])
def test_wrong_arguments_are_named(op: Any, change: Any, said: str, inplace: bool) -> None:
    x = torch.ones(1, 3, 2, 4, device=op.device)
    with pytest.raises(RuntimeError, match=said):
        op.functions.rotary_embedding(*change(x, *_tables(3, 2, op.device)), inplace=inplace)
    assert (x == 1).all()


def test_shared_memory_is_refused_in_place(op: Any) -> None:
    x = torch.ones(1, 3, 1, 4, device=op.device).expand(1, 3, 2, 4)
    with pytest.raises(RuntimeError, match="whose elements share memory"):
        op.functions.rotary_embedding(x, *_tables(3, 2, op.device), inplace=True)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # from torch.compile itself
def test_gradcheck_opcheck_and_compile(op: Any) -> None:
    cos, sin = _tables(3, 2, op.device)
    if op.name == "cpu":
        x = torch.randn(1, 3, 2, 5, dtype=torch.float64, requires_grad=True)
        for interleaved in (False, True):
            call = lambda x, i=interleaved: op.functions.rotary_embedding(x, cos, sin, interleaved=i)  # noqa: E731
            assert torch.autograd.gradcheck(call, (x,))
    space = op.space
    x = torch.randn(1, 3, 2, 4, device=op.device, requires_grad=True)
    opcheck(space.rotary_embedding.default, (x, cos, sin, False, False))
    opcheck(space.rotary_embedding_.default, (x.detach().clone(), cos, sin, True, False))
    for inplace in (False, True):
        compiled = torch.compile(
            lambda x, i=inplace: op.functions.rotary_embedding(x * 1, cos, sin, inplace=i),
            fullgraph=True,
            backend="aot_eager",
        )
        x.grad = None
        y = compiled(x)
        torch.testing.assert_close(y, op.functions.rotary_embedding(x, cos, sin))
        y.sum().backward()
        assert x.grad is not None


def test_angles_that_require_a_gradient_are_refused() -> None:
    """They would silently get no gradient."""
    x, cos, sin = torch.ones(1, 2, 1, 4), torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="cos or sin requires a gradient"):
        load("cpu", BUILDER).functions.rotary_embedding(x, cos, sin)


def test_a_second_derivative_in_place_is_refused() -> None:
    """It was silently wrong: the gradient is rotated in place, which autograd does not see."""
    op = load("cpu", BUILDER).functions
    x = torch.randn(1, 3, 2, 4, requires_grad=True)
    cos, sin = _tables(3, 2, "cpu")
    y = op.rotary_embedding(x * 1, cos, sin, inplace=True)
    (grad,) = torch.autograd.grad((y**2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated", "ignore:.*torch.jit.script.* is not supported")
def test_a_tangent_in_place_is_refused_before_anything_is_written() -> None:
    x, cos = torch.ones(1, 1, 1, 8), torch.zeros(1, 4)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="got a tangent"):
        load("cpu", BUILDER).functions.rotary_embedding(forward_ad.make_dual(x, x.clone()), cos, cos, inplace=True)
    assert (x == 1).all()


def _leaf() -> torch.Tensor:
    return torch.ones(2, 3, 2, 4, requires_grad=True)


def _unwritable(kind: str) -> torch.Tensor:
    if kind == "inference tensor":
        with torch.inference_mode():
            return torch.ones(2, 3, 2, 4)
    if kind == "view without a gradient":
        leaf = torch.ones(2, 2, 3, 2, 4, requires_grad=True) * 1
        with torch.no_grad():
            return leaf[0]
    made = {
        "leaf": _leaf,
        "view of a leaf": lambda: _leaf()[:1],
        "one of several": lambda: torch.ones(2, 2, 3, 2, 4, requires_grad=True).mul(1).unbind(0)[0],
        "chunk": lambda: (_leaf() * 1).chunk(2)[0],
    }
    return made[kind]()


@pytest.mark.parametrize(
    "kind", ["leaf", "view of a leaf", "one of several", "chunk", "view without a gradient", "inference tensor"]
)
def test_what_torch_does_not_let_write_is_refused_before_the_writing(kind: str) -> None:
    functions = RotaryEmbeddingLoader().load()
    x = _unwritable(kind)
    with pytest.raises(RuntimeError):
        _unwritable(kind).mul_(2)
    with pytest.raises(RuntimeError, match=r"rotary_embedding failed: got x that is .* Fix: leave inplace out"):
        functions.rotary_embedding(x, *_tables(3, 2, "cpu"), inplace=True)
    assert bool((x == 1).all())
    with torch.no_grad():  # then torch lets write all but inference tensors
        if kind != "inference tensor":
            functions.rotary_embedding(x, *_tables(3, 2, "cpu"), inplace=True)
            assert not bool((x == 1).all())
