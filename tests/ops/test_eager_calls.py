"""The differentiable functions: called directly, through the dispatcher, and under code that traces or changes calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from anyaccel import ops
from anyaccel.kernels.functions.eager import DifferentiableOp, RecordedOp
from anyaccel.op_builder import OpLoadError
from anyaccel.op_builder.cpu.autograd import AutogradBuilder, recorder
from anyaccel.ops.loading import loaded

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
OLD_WARNINGS = pytest.mark.filterwarnings(  # torch's own, at the first forward-mode gradient; the second on Python 3.14
    "ignore:.*torch.jit.script.* is deprecated", "ignore:.*torch.jit.script.* is not supported"
)


class Counted(TorchDispatchMode):
    """Counts the calls of this project's ops."""

    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += func.namespace == "anyaccel"
        return func(*args, **(kwargs or {}))


class Marked(torch.Tensor):
    """A subclass, like those of quantized weights."""


@pytest.fixture(params=["python", "c++"], autouse=True)
def recorded_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Record gradients by Python's ``autograd.Function``, or by the op ``autograd``, which conftest.py has built."""
    if request.param == "python":
        monkeypatch.setattr(RecordedOp, "__call__", DifferentiableOp.__call__)
    else:
        assert type(loaded("RMSNormLoader")._rms_norm) is RecordedOp
    return str(request.param)


@pytest.fixture(params=FUNCTIONS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_function_with_a_derivative_is_a_case() -> None:
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
        patch.setattr(RecordedOp, "__call__", noted)
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
    for loss in (lambda y: y.pow(2).sum(), lambda y: (y * _numbers(*y.shape, seed=2)).sum()):
        first = loss(function(x))
        (grad,) = torch.autograd.grad(first, x, create_graph=True)
        if not grad.requires_grad:
            assert name == "dispatch"  # which is linear, as the second loss is
            continue
        penalty = first + grad.pow(2).sum()
        with pytest.raises(RuntimeError, match="differentiate twice"):
            torch.autograd.grad(penalty, x, retain_graph=True)
        with pytest.raises(RuntimeError, match="differentiate twice"):
            penalty.backward(retain_graph=True)


def test_a_second_derivative_of_batched_gradients_is_right_or_refused(name: str) -> None:
    """The penalty was dropped: the node that refuses was lost with the batch."""
    x = X.clone().requires_grad_()
    y = FUNCTIONS[name](x)
    batch = torch.ones(2, *y.shape, dtype=y.dtype)
    (plain,) = torch.autograd.grad(y, x, batch, is_grads_batched=True, retain_graph=True)
    (one,) = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)
    assert torch.allclose(plain[0], one)
    if name in TWICE:
        (grads,) = torch.autograd.grad(y, x, batch, is_grads_batched=True, create_graph=True)
        assert torch.equal(grads, plain)
        return
    with pytest.raises(RuntimeError, match="differentiate twice"):
        torch.autograd.grad(y, x, batch, is_grads_batched=True, create_graph=True)


def test_a_checkpointed_function_may_be_differentiated_with_a_graph(name: str) -> None:
    """Its saved tensors may be unpacked once."""
    x = X.clone().requires_grad_()
    with Counted():
        y = checkpoint(FUNCTIONS[name], x, use_reentrant=False)
        (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (plain,) = torch.autograd.grad(FUNCTIONS[name](x).sum(), x)
    assert torch.equal(grad, plain)


def test_what_follows_calls_sees_the_op(name: str) -> None:
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_mode:
        fake = FUNCTIONS[name](fake_mode.from_tensor(X))
    assert fake.shape == FUNCTIONS[name](X).shape
    assert torch.allclose(FUNCTIONS[name](X.as_subclass(Marked)), FUNCTIONS[name](X))


TRANSFORMS: dict[str, Callable[[Callable[[torch.Tensor], torch.Tensor]], Any]] = {
    "jvp": lambda function: torch.func.jvp(function, (X,), (X,)),
    "jacfwd": lambda function: torch.func.jacfwd(function, randomness="same")(X),
    "grad": lambda function: torch.func.grad(lambda x: function(x).sum())(X),
    "vjp": lambda function: torch.func.vjp(function, X),
}


@OLD_WARNINGS
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_that_differentiate_are_refused(name: str, transform: str) -> None:
    """Torch would take a derivative for 0 that it has no formula for."""
    with pytest.raises(RuntimeError, match=r"failed: got a .*differentiat.*Fix: use backward\(\)"):
        TRANSFORMS[transform](FUNCTIONS[name])


@OLD_WARNINGS
@pytest.mark.parametrize("records", [False, True], ids=["plain", "requires grad"])
def test_a_tangent_is_refused(name: str, records: bool) -> None:
    x = X.clone().requires_grad_(records)
    with forward_ad.dual_level():
        assert torch.equal(FUNCTIONS[name](X), FUNCTIONS[name](x))  # without a tangent
        with pytest.raises(RuntimeError, match=r"failed: got a tangent .*Fix: use backward\(\)"):
            FUNCTIONS[name](forward_ad.make_dual(x, X))


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_gradients_of_the_results_that_are_used(used: tuple[int, ...]) -> None:
    weight = _numbers(6, seed=2)
    got, expected = ([X.clone().requires_grad_(), _numbers(4, 6, seed=3).requires_grad_()] for _ in range(2))
    results = ops.add_rms_norm(*got, weight)
    total = expected[0] + expected[1]
    references = (ops.rms_norm(total, weight), total)
    sum((results[i] * (i + 2)).pow(2).sum() for i in used).backward()
    sum((references[i] * (i + 2)).pow(2).sum() for i in used).backward()
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.allclose(ours.grad, theirs.grad)
    assert not any(result.grad_fn is None for result in results)


def test_what_the_graph_keeps(name: str) -> None:
    x = X.clone().requires_grad_()
    FUNCTIONS[name](x).pow(2).sum().backward()
    packed = []

    def pack(tensor: torch.Tensor) -> int:
        packed.append(tensor.clone())
        return len(packed) - 1

    kept, recomputed = X.clone().requires_grad_(), X.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, packed.__getitem__):
        y = FUNCTIONS[name](kept)
    assert packed
    y.pow(2).sum().backward()
    assert torch.equal(kept.grad, x.grad)
    checkpoint(FUNCTIONS[name], recomputed, use_reentrant=False).pow(2).sum().backward()
    assert torch.equal(recomputed.grad, x.grad)
    with pytest.raises(RuntimeError, match="second time"):
        y.pow(2).sum().backward()


def test_a_changed_input_is_noticed() -> None:
    x = X.clone().requires_grad_()
    between = x * 2
    y = ops.rms_norm(between, _numbers(6))
    between.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.* is deprecated", "ignore:.*torch.jit.trace.* is not supported")
@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_traces_and_profiles_name_the_op() -> None:
    traced = torch.jit.trace(lambda x: ops.swiglu(x, x), X)
    assert "anyaccel::swiglu" in str(traced.graph)
    assert "anyaccel_autograd" not in str(traced.graph)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        ops.swiglu(X.clone().requires_grad_(), X).sum().backward()
    assert {"anyaccel::swiglu", "anyaccel::swiglu_backward"} <= {event.name for event in profile.events()}


def test_sixteen_threads() -> None:
    weight = _numbers(6)
    expected = X.clone().requires_grad_()
    ops.rms_norm(expected, weight).pow(2).sum().backward()

    def gradient(_: int) -> torch.Tensor:
        x = X.clone().requires_grad_()
        for _ in range(50):
            x.grad = None
            ops.rms_norm(x, weight).pow(2).sum().backward()
        return x.grad

    with ThreadPoolExecutor(16) as pool:
        assert all(torch.equal(grad, expected.grad) for grad in pool.map(gradient, range(16)))


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor.*:UserWarning")  # torch's own access
def test_compiled_autograd() -> None:
    x, expected = X.clone().requires_grad_(), X.clone().requires_grad_()
    ops.layer_norm(expected, _numbers(6), _numbers(6)).pow(2).sum().backward()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        ops.layer_norm(x, _numbers(6), _numbers(6)).pow(2).sum().backward()
    assert torch.equal(x.grad, expected.grad)


@pytest.mark.parametrize(("member", "is_told"), [("is_built", False), ("load", True)])
def test_without_a_library_that_loads_gradients_are_recorded_in_python(
    member: str, is_told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: AutogradBuilder) -> None:
        raise OpLoadError(member)

    assert recorder() is not None
    monkeypatch.setattr(AutogradBuilder, member, refuse)
    assert recorder() is None
    assert ("gradients are recorded in Python: load" in caplog.text) is is_told


@pytest.mark.parametrize(
    ("takes", "gives", "results"),
    [
        (["grad0", "input0"], [0, 1], 1),
        (["grad0", "input0", "input1", "input1"], [0, 1], 1),
        (["grad1", "input0", "input1"], [0, 1], 1),
        (["grad", "input0", "input1"], [0, 1], 1),
        (["grad0", "input2", "input1"], [0, 1], 1),
        (["grad0", "input0", "result1"], [0, 1], 1),
        (["grad0", "input0", "input1x"], [0, 1], 1),
        (["grad0", "input0", "input99999999999999999999"], [0, 1], 1),
        (["grad0", "input0", "none"], [0, 1], 1),
        (["grad0", "input0", ""], [0, 1], 1),
        (["grad0", "input0", "input1"], [0], 1),
        (["grad0", "input0", "input1"], [0, 2], 1),
        (["grad0", "input0", "input1"], [0, 1], 0),
        (["grad0", "input0", "input1"], [0, 1], 2),
        (["grad0", "input0", "input1"], [0, 1], -1),
    ],
)
def test_a_wrong_derivative_is_refused(takes: list[str], gives: list[int], results: int) -> None:
    loaded("ActivationsLoader")
    with pytest.raises(RuntimeError, match=r"recording 'anyaccel::swiglu' failed: got .*Fix: change the Derivative"):
        AutogradBuilder().load().record("anyaccel::swiglu", "anyaccel::swiglu_backward", takes, gives, results)
