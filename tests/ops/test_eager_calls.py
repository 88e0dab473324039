"""The differentiable functions: called directly, through the dispatcher, and under code that traces or changes calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from anyaccel import ops

from .conftest import load

if TYPE_CHECKING:
    from collections.abc import Callable


def _numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X = _numbers(4, 6)
ROUTING = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 2]])

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rms_norm": lambda x: ops.rms_norm(x, _numbers(6)),
    "add_rms_norm": lambda x: ops.add_rms_norm(x, X, _numbers(6))[0],
    "layer_norm": lambda x: ops.layer_norm(x, _numbers(6), _numbers(6, seed=1)),
    "add_layer_norm": lambda x: ops.add_layer_norm(x, X, _numbers(6), _numbers(6, seed=1))[1],
    "swiglu": lambda x: ops.swiglu(x, X),
    "geglu": lambda x: ops.geglu(X, x),
    "bias_gelu": lambda x: ops.bias_gelu(x, _numbers(6)),
    "scaled_masked_softmax": lambda x: ops.scaled_masked_softmax(x, None, 0.5),
    "scaled_upper_triang_masked_softmax": lambda x: ops.scaled_upper_triang_masked_softmax(x[:, :4][None]),
    "rotary_embedding": lambda x: ops.rotary_embedding(x[None, :, None], _numbers(4, 3).cos(), _numbers(4, 3).sin()),
    "topk_gating": lambda x: ops.topk_gating(x, 2)[0],
    "dispatch": lambda x: ops.dispatch(x, ops.route(ROUTING, 3)),
    "combine": lambda x: ops.combine(x.repeat(2, 1), _numbers(4, 2), ops.route(ROUTING, 3)),
    "dense": lambda x: load("cpu", "DenseBuilder").functions.dense(x, _numbers(3, 6), _numbers(3)),
}
TWICE = {"dense", "rotary_embedding"}


class Counted(TorchDispatchMode):
    """Counts the calls of this project's ops."""

    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += func.namespace == "anyaccel"
        return func(*args, **(kwargs or {}))


class Marked(torch.Tensor):
    """A subclass, like those of quantized weights."""


@pytest.fixture(params=FUNCTIONS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_function_with_a_derivative_is_a_case() -> None:
    from anyaccel.kernels.functions.eager import DifferentiableOp
    from anyaccel.op_builder.table import OPS

    classes = [op.functions_class() for op in OPS if op.functions]
    differentiable = {name for cls in classes for name, (_, *derivative) in cls.OPS.items() if derivative}
    called: set[str] = set()
    original = DifferentiableOp.__call__

    def noted(self: DifferentiableOp, *inputs: Any) -> Any:
        called.add(self.op.name().split("::")[1])
        return original(self, *inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DifferentiableOp, "__call__", noted)
        for function in FUNCTIONS.values():
            function(X)
    assert differentiable - called == {"dense_linear"}  # the linear layer only: tests/ops/test_dense.py


def test_a_direct_call_equals_one_through_the_dispatcher(name: str) -> None:
    direct, followed = X.clone().requires_grad_(), X.clone().requires_grad_()
    y = FUNCTIONS[name](direct)
    with Counted() as counted:
        expected = FUNCTIONS[name](followed)
    assert counted.seen > 0
    assert y.grad_fn is not None
    assert torch.equal(y, expected)
    y.pow(2).sum().backward()
    expected.pow(2).sum().backward()
    assert torch.equal(direct.grad, followed.grad)
    assert torch.autograd.gradcheck(FUNCTIONS[name], (direct,))
    assert FUNCTIONS[name](X).grad_fn is None
    with torch.no_grad():
        assert torch.equal(FUNCTIONS[name](direct), y)
        assert not FUNCTIONS[name](direct).requires_grad
    with torch.inference_mode():
        assert torch.equal(FUNCTIONS[name](direct), y)


@pytest.mark.parametrize("mode", [None, Counted])
def test_a_second_derivative_is_right_or_refused(name: str, mode: type[Counted] | None) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        if mode is None:
            return FUNCTIONS[name](x)
        with mode():
            return FUNCTIONS[name](x)

    x = X.clone().requires_grad_()
    if name in TWICE:
        assert torch.autograd.gradgradcheck(function, (x,))
        return
    (grad,) = torch.autograd.grad(function(x).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        grad.pow(2).sum().backward()


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script.*:DeprecationWarning"
)  # a warning of torch's, at the first forward-mode gradient
def test_what_follows_calls_sees_the_op(name: str) -> None:
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_mode:
        fake = FUNCTIONS[name](fake_mode.from_tensor(X))
    assert fake.shape == FUNCTIONS[name](X).shape
    assert torch.allclose(FUNCTIONS[name](X.as_subclass(Marked)), FUNCTIONS[name](X))
    with forward_ad.dual_level(), pytest.raises((RuntimeError, NotImplementedError)):
        forward_ad.unpack_dual(FUNCTIONS[name](forward_ad.make_dual(X.clone().requires_grad_(), X)))
