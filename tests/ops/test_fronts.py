"""The modules and optimizers in ``anyaccel.ops``, as a training loop uses them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel import ops

if TYPE_CHECKING:
    from collections.abc import Callable

PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "adamw": (lambda p: ops.FusedAdam(p, lr=0.01), lambda p: torch.optim.AdamW(p, lr=0.01)),
    "adam": (
        lambda p: ops.FusedAdam(p, lr=0.01, weight_decay=0.1, adamw_mode=False, maximize=True),
        lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, maximize=True),
    ),
    "cpu adam": (lambda p: ops.FusedAdam(p, lr=0.01), lambda p: ops.CPUAdam(p, lr=0.01)),
    "sgd": (
        lambda p: ops.FusedSGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    ),
    "sgd without momentum": (
        lambda p: ops.FusedSGD(p, lr=0.1, dampening=0.5, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, lr=0.1, dampening=0.5, weight_decay=0.01),
    ),
    "nesterov": (
        lambda p: ops.FusedSGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    ),
    "adagrad": (
        lambda p: ops.CPUAdagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.1),
    ),
    "lion": (lambda p: ops.FusedLion(p, lr=0.01), lambda p: ops.CPULion(p, lr=0.01)),
}


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))


def _train(model: torch.nn.Module, optimizer: Any, steps: int) -> None:
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("optimizer_class", [ops.FusedAdam, ops.FusedLion, ops.FusedSGD, ops.FusedLamb])
def test_a_step_in_a_graphs_capture_is_refused(optimizer_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model()
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    model(torch.ones(2, 5)).sum().backward()
    before = [param.detach().clone() for param in model.parameters()]
    is_capturing = [True]
    monkeypatch.setattr(torch.cpu, "is_current_stream_capturing", lambda: is_capturing[0], raising=False)
    with pytest.raises(RuntimeError, match=f"{optimizer_class.__name__} failed: got a step while cpu captures a graph"):
        optimizer.step()
    assert not optimizer.state
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    is_capturing[0] = False
    optimizer.step()
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("name", PAIRS)
def test_an_optimizer_trains_like_its_peer_and_their_state_dicts_are_exchangeable(name: str) -> None:
    models = [_model(), _model()]
    optimizers = [make(model.parameters()) for make, model in zip(PAIRS[name], models, strict=True)]
    for _ in range(2):
        for model, optimizer in zip(models, optimizers, strict=True):
            _train(model, optimizer, 3)
        for mine, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        states = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers]
        optimizers[0].load_state_dict(states[1])
        optimizers[1].load_state_dict(states[0])


@pytest.mark.parametrize("name", ["adamw", "lion", "adagrad", "sgd"])
def test_float32_states_survive_a_reload_beside_bfloat16_parameters(name: str) -> None:
    param = torch.nn.Parameter(torch.ones(5, dtype=torch.bfloat16))
    optimizer = PAIRS[name][0]([param])
    param.grad = torch.full_like(param, 0.1)
    optimizer.step()
    before = {key: value.clone() for key, value in optimizer.state[param].items() if torch.is_tensor(value)}
    again = PAIRS[name][0]([param])
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for key, value in before.items():
        assert again.state[param][key].dtype == torch.float32
        assert torch.equal(again.state[param][key], value)


def test_lamb_trains() -> None:
    model = _model()
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    before = model(x).square().sum().item()
    _train(model, ops.FusedLamb(model.parameters(), lr=0.05), 50)
    assert model(x).square().sum().item() < before / 2


def test_parameters_without_gradients_and_new_groups_are_handled() -> None:
    first, second, third = (torch.nn.Parameter(torch.ones(3)) for _ in range(3))
    optimizer = ops.FusedAdam([first, second], lr=0.1)
    first.grad = torch.ones(3)
    optimizer.step()
    assert (second == 1).all()
    optimizer.add_param_group({"params": [third], "lr": 0.5})
    second.grad, third.grad = torch.ones(3), torch.ones(3)
    optimizer.step()
    assert [int(optimizer.state[p]["step"]) for p in (first, second, third)] == [2, 1, 1]
    assert third[0].item() == pytest.approx(1 * (1 - 0.5 * 0.01) - 0.5, abs=1e-5)


def test_a_flag_and_a_scale_decide_on_the_device() -> None:
    param = torch.nn.Parameter(torch.ones(3))
    param.grad = torch.full((3,), 8.0)
    optimizer = ops.FusedSGD([param], lr=0.1)
    optimizer.step(noop_flag=torch.ones(1, dtype=torch.int32))
    assert (param == 1).all()
    optimizer.step(grad_scale=torch.tensor([8.0]))
    assert param[0].item() == pytest.approx(0.9)


def test_it_works_with_a_scheduler_and_a_closure() -> None:
    model = _model()
    optimizer = ops.FusedLion(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 5)).square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() > 0
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: ops.FusedAdam(p, lr=-1.0), "FusedAdam failed: got lr=-1.0; expected a number of 0 or more"),
        (lambda p: ops.FusedLion(p, betas=(0.9, 1.0)), r"FusedLion failed: got betas=\(0.9, 1.0\)"),
        (lambda p: ops.FusedSGD(p, nesterov=True), "FusedSGD failed: got nesterov=True; expected a momentum"),
        (lambda p: ops.FusedAdam([{"params": p, "eps": -1.0}]), "got eps=-1.0"),
    ],
)
def test_options_out_of_range_are_named(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make([torch.nn.Parameter(torch.ones(1))])


def test_cpu_optimizers_refuse_parameters_elsewhere() -> None:
    for make in (ops.CPULion, ops.CPUAdagrad):
        with pytest.raises(ValueError, match="got a parameter's device=meta; expected cpu"):
            make([torch.nn.Parameter(torch.ones(1, device="meta"))])


def test_the_modules_are_torchs() -> None:
    x, residual = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    rms, layer = ops.RMSNorm(8), ops.LayerNorm(8)
    torch.testing.assert_close(rms(x), torch.nn.functional.rms_norm(x, (8,), eps=1e-6))
    torch.testing.assert_close(layer(x), torch.nn.functional.layer_norm(x, (8,)))
    for module in (rms, layer):
        y, total = module(x, residual)
        torch.testing.assert_close(total, x + residual)
        torch.testing.assert_close(y, module(total))
    assert repr(rms) == "RMSNorm(8, eps=1e-06)"
    assert set(layer.state_dict()) == {"weight", "bias"}


def test_the_functions_are_torchs() -> None:
    gate, up = torch.randn(3, 8), torch.randn(3, 8)
    torch.testing.assert_close(ops.swiglu(gate, up), torch.nn.functional.silu(gate) * up)
    torch.testing.assert_close(ops.geglu(gate, up), torch.nn.functional.gelu(gate) * up, rtol=1e-5, atol=1e-6)
    expected = torch.nn.functional.gelu(gate + up[0], approximate="tanh")
    torch.testing.assert_close(ops.bias_gelu(gate, up[0]), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ops.scaled_masked_softmax(gate, scale=2.0), (2 * gate).softmax(-1))
    hidden = torch.ones(8, 8, dtype=torch.bool).triu(1)
    square = torch.randn(8, 8)
    causal = square.masked_fill(hidden, -torch.inf).softmax(-1)
    torch.testing.assert_close(ops.scaled_upper_triang_masked_softmax(square), causal)
    torch.testing.assert_close(ops.dequantize(*ops.quantize(gate, 3)), gate, rtol=0, atol=0.03)
    torch.testing.assert_close(ops.dequantize_float8(*ops.quantize_float8(gate, 3)), gate, rtol=0.1, atol=0.01)


def test_gradients_are_clipped_as_torch_does() -> None:
    models = [_model(), _model()]
    for model in models:
        model(torch.ones(2, 5)).sum().mul(100).backward()
    mine = ops.clip_grad_norm_(models[0].parameters(), 1.0)
    theirs = torch.nn.utils.clip_grad_norm_(models[1].parameters(), 1.0)
    torch.testing.assert_close(mine[0], theirs)
    for left, right in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad)
    assert ops.clip_grad_norm_([torch.ones(1)], 1.0).item() == 0


def test_a_mixture_of_experts_layer_agrees_with_its_loop() -> None:
    torch.manual_seed(0)
    x, logits = torch.randn(11, 4, requires_grad=True), torch.randn(11, 3)
    experts = [torch.nn.Linear(4, 4) for _ in range(3)]
    weights, taken, _ = ops.topk_gating(logits, 2, normalise=True)
    routing = ops.route(taken, 3)
    rows = ops.dispatch(x, routing).split(routing.counts.tolist())
    done = torch.cat([expert(some) for expert, some in zip(experts, rows, strict=True)])
    y = ops.combine(done, weights, routing)
    expected = torch.stack(
        [sum(w * experts[e](x[t]) for w, e in zip(weights[t], taken[t].tolist(), strict=True)) for t in range(11)]
    )
    torch.testing.assert_close(y, expected)
    (grad,) = torch.autograd.grad(y.square().sum(), x, retain_graph=True)
    torch.testing.assert_close(grad, torch.autograd.grad(expected.square().sum(), x)[0])
