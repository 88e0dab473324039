"""``CPUAdam`` as an optimizer: against torch.optim.AdamW, and as torch's users use optimizers."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from anyaccel.ops import CPUAdam

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "1": [(1,)],
    "7": [(7,)],
    "1023": [(1023,)],
    "1000003": [(1_000_003,)],
    "500 small": [(index % 37,) for index in range(500)],
    "empty": [(0,), (3, 0)],
}


def _pair(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float32) -> tuple[list[Parameter], list[Parameter]]:
    generator = torch.Generator().manual_seed(1)
    ours = [Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes]
    return ours, [Parameter(param.detach().double()) for param in ours]


def _set_grads(step: int, *lists: list[Parameter]) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for params in zip(*lists, strict=True):
        grad = torch.randn(params[0].shape, generator=generator).to(params[0].dtype)
        for param in params:
            param.grad = grad.to(param.dtype)


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("options", [{}, {"maximize": True, "weight_decay": 0.1, "betas": (0.8, 0.99), "eps": 1e-6}])
def test_follows_adamw_in_float64_over_100_steps(shapes: str, options: dict[str, Any]) -> None:
    ours, theirs = _pair(SHAPES[shapes])
    optimizers = CPUAdam(ours, lr=1e-2, **options), torch.optim.AdamW(theirs, lr=1e-2, **options)
    for step in range(100):
        _set_grads(step, ours, theirs)
        for optimizer in optimizers:
            optimizer.step()
    for our_param, their_param in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our_param.double(), their_param, rtol=1e-5, atol=2e-5)


def test_adam_mode_follows_torch_adam() -> None:
    ours, theirs = _pair([(100,)])
    optimizers = CPUAdam(ours, weight_decay=0.1, adamw_mode=False), torch.optim.Adam(theirs, weight_decay=0.1)
    for step in range(20):
        _set_grads(step, ours, theirs)
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(ours[0].double(), theirs[0], rtol=1e-5, atol=1e-6)


def test_groups_are_adamws() -> None:
    ours, theirs = _pair([(3,)])
    assert set(CPUAdam(ours).param_groups[0]) == set(torch.optim.AdamW(theirs).param_groups[0])
    defaults = {key: value for key, value in CPUAdam(ours).param_groups[0].items() if key != "params"}
    assert defaults == {k: v for k, v in torch.optim.AdamW(theirs).param_groups[0].items() if k != "params"}


@pytest.mark.parametrize("fused", [True, False])
def test_state_dicts_are_exchangeable_both_ways(fused: bool) -> None:
    start = [(5, 3), (7,)]
    ours, theirs = _pair(start)[0], [Parameter(param.detach().clone()) for param in _pair(start)[0]]
    our_optimizer, their_optimizer = CPUAdam(ours), torch.optim.AdamW(theirs, fused=fused)
    for step in range(6):
        _set_grads(step, ours, theirs)
        our_optimizer.step()
        their_optimizer.step()
        if step == 2:  # exchange states, through a file
            our_state, their_state = (
                torch.load(_saved(optimizer.state_dict())) for optimizer in (our_optimizer, their_optimizer)
            )
            our_optimizer, their_optimizer = CPUAdam(ours), torch.optim.AdamW(theirs, fused=fused)
            our_optimizer.load_state_dict(their_state)
            their_optimizer.load_state_dict({**our_state, "param_groups": their_state["param_groups"]})
    for our_param, their_param in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our_param, their_param, rtol=1e-5, atol=1e-6)
        our_kept, their_kept = our_optimizer.state[our_param], their_optimizer.state[their_param]
        assert list(our_kept) == list(their_kept) == ["step", "exp_avg", "exp_avg_sq"]
        assert our_kept["step"] == their_kept["step"] == 6
        assert our_kept["step"].dtype == their_kept["step"].dtype


def test_a_parameter_without_a_gradient_survives_two_state_dicts() -> None:
    used, frozen = (Parameter(torch.ones(2)) for _ in range(2))
    optimizer = CPUAdam([used, frozen])
    used.grad = torch.ones(2)
    for _ in range(3):
        optimizer.step()
        saved = torch.load(_saved(optimizer.state_dict()))
        assert list(saved["state"]) == [0]
        optimizer = copy.deepcopy(CPUAdam([used, frozen]))
        optimizer.param_groups[0]["params"] = [used, frozen]
        optimizer.load_state_dict(saved)
        assert frozen not in optimizer.state
    assert optimizer.state[used]["step"] == 3
    optimizer.load_state_dict({**saved, "state": {**saved["state"], 1: {}}})  # as older versions saved it
    assert optimizer.state[used]["step"] == 3


def test_states_are_on_the_cpu_whatever_the_default_device_and_dtype() -> None:
    param = Parameter(torch.ones(2))
    param.grad = torch.ones(2)
    with torch.device("meta"):
        optimizer = CPUAdam([param])
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()
    assert {value.device.type for value in optimizer.state[param].values()} == {"cpu"}
    assert param.device.type == "cpu"
    assert param[0] < 1


def _saved(state: dict[str, Any]) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("keep_float", [True, False])
def test_float32_moments_survive_a_state_dict(dtype: torch.dtype, keep_float: bool) -> None:
    (ours, _) = _pair([(101,)], dtype)
    optimizer = CPUAdam(ours, fp32_optimizer_states=keep_float)
    _set_grads(0, ours)
    optimizer.step()
    before = optimizer.state[ours[0]]["exp_avg"].clone()
    assert before.dtype is (torch.float32 if keep_float else dtype)
    for loaded in (CPUAdam(ours, fp32_optimizer_states=keep_float), optimizer):
        loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        assert torch.equal(loaded.state[ours[0]]["exp_avg"], before)


def test_loading_leaves_the_source_alone_and_honours_hooks() -> None:
    ours, theirs = _pair([(3,)])
    source, target = torch.optim.AdamW(theirs), CPUAdam(ours)
    _set_grads(0, ours, theirs)
    source.step()

    def without_momentum(optimizer: CPUAdam, state_dict: dict[str, Any]) -> dict[str, Any]:
        state_dict = copy.deepcopy(state_dict)
        state_dict["state"][0]["exp_avg"].zero_()
        return state_dict

    target.register_load_state_dict_pre_hook(without_momentum)
    target.load_state_dict(source.state_dict())
    assert target.state[ours[0]]["exp_avg"].tolist() == [0.0] * 3
    target.step()
    assert source.state[theirs[0]]["step"] == 1


def test_deepspeeds_integer_steps_load() -> None:
    ours, _ = _pair([(4,)])
    _set_grads(0, ours)
    optimizer = CPUAdam(ours)
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][0]["step"] = 5
    optimizer.load_state_dict(state)
    optimizer.step()
    assert optimizer.state[ours[0]]["step"] == 6


def test_closure_runs_with_gradients_and_returns_its_loss() -> None:
    param = Parameter(torch.tensor([3.0]))
    optimizer = CPUAdam([param], lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (param**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 9.0
    assert param.item() < 3.0


def test_groups_have_their_own_options_and_may_come_later() -> None:
    first, second = Parameter(torch.ones(3)), Parameter(torch.ones(3))
    optimizer = CPUAdam([{"params": [first], "lr": 0.5, "weight_decay": 0.0}], lr=0.1)
    optimizer.add_param_group({"params": [second], "lr": 0.0})
    for param in (first, second):
        param.grad = torch.ones(3)
    optimizer.step()
    assert first.tolist() == [0.5] * 3
    assert second.tolist() == [1.0] * 3


def test_parameters_without_gradient_are_left_alone() -> None:
    used, unused = Parameter(torch.ones(3)), Parameter(torch.ones(3))
    optimizer = CPUAdam([unused, used])
    used.grad = torch.ones(3)
    optimizer.step()
    assert unused.tolist() == [1.0] * 3
    assert unused not in optimizer.state
    unused.grad = torch.ones(3)
    optimizer.step()
    assert (optimizer.state[used]["step"], optimizer.state[unused]["step"]) == (2, 1)


def test_replaced_state_and_data_are_used() -> None:
    param = Parameter(torch.ones(3))
    optimizer = CPUAdam([param], lr=0.1, weight_decay=0.0)
    param.grad = torch.ones(3)
    optimizer.step()
    optimizer.state[param]["exp_avg"] = torch.zeros(3)
    param.data = torch.full((3,), 5.0)
    param.grad = torch.zeros(3)
    optimizer.step()
    assert param.tolist() == [5.0] * 3


def test_states_changed_from_outside_are_used() -> None:
    ours, theirs = _pair([(5,), (2, 3), (1,)])
    optimizers = CPUAdam(ours), torch.optim.AdamW(theirs)
    for step in range(8):
        _set_grads(step, ours, theirs)
        if step == 2:  # in place
            for optimizer, params in zip(optimizers, (ours, theirs), strict=True):
                optimizer.state[params[1]]["exp_avg"].zero_()
                optimizer.state[params[2]]["step"].fill_(10)
        if step == 4:  # replaced
            optimizers[0].state[ours[0]]["exp_avg_sq"] = torch.ones(5)
            optimizers[1].state[theirs[0]]["exp_avg_sq"] = torch.ones(5, dtype=torch.float64)
        if step == 5:  # with other memory
            optimizers[0].state[ours[2]]["exp_avg"].data = torch.zeros(1)
            optimizers[1].state[theirs[2]]["exp_avg"].data = torch.zeros(1, dtype=torch.float64)
        if step == 6:  # one parameter has no gradient
            ours[1].grad = theirs[1].grad = None
        for optimizer in optimizers:
            optimizer.step()
    for our_param, their_param in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our_param.double(), their_param, rtol=1e-5, atol=1e-6)
    assert [int(optimizers[0].state[param]["step"]) for param in ours] == [8, 7, 16]


def test_a_parameter_made_discontiguous_still_steps() -> None:
    params = [Parameter(torch.ones(2, 2)), Parameter(torch.ones(3))]
    optimizer = CPUAdam(params, lr=0.5, weight_decay=0.0)
    for _ in range(2):
        for param in params:
            param.grad = torch.ones_like(param)
        optimizer.step()
        params[0].data = params[0].data.t().clone(memory_format=torch.preserve_format)
    assert params[0].tolist() == [[0.0, 0.0]] * 2


def test_schedulers_scalers_and_tensor_learning_rates_work() -> None:
    param = Parameter(torch.ones(3))
    optimizer = CPUAdam([param], lr=torch.tensor(0.5), weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(param.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    assert param.tolist() == [0.5] * 3
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.05)


def test_copies_and_pickles() -> None:
    param = Parameter(torch.ones(3))
    optimizer = CPUAdam([param], bias_correction=False, fp32_optimizer_states=False)
    param.grad = torch.ones(3)
    optimizer.step()
    for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert (copied.bias_correction, copied.fp32_optimizer_states) == (False, False)
        copied.param_groups[0]["params"][0].grad = torch.ones(3)
        copied.step()
        assert copied.state[copied.param_groups[0]["params"][0]]["step"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"amsgrad": True}, "amsgrad=True; expected False"),
        ({"differentiable": True}, "differentiable=True"),
        ({"capturable": True}, "capturable=True"),
        ({"foreach": True}, "foreach=True"),
        ({"lr": -1.0}, "lr=-1.0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"eps": -1.0}, "eps=-1.0"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0"),
        ({"betas": (1.0, 0.9)}, r"betas=\(1.0, 0.9\)"),
    ],
)
def test_what_is_not_supported_is_refused(options: dict[str, Any], message: str) -> None:
    param = Parameter(torch.ones(1))
    with pytest.raises(ValueError, match=message):
        CPUAdam([param], **options)
    with pytest.raises(ValueError, match=message):
        CPUAdam([{"params": [param], **options}])


def test_an_amsgrad_state_dict_is_refused() -> None:
    param = Parameter(torch.ones(1))
    theirs = torch.optim.AdamW([param], amsgrad=True)
    with pytest.raises(ValueError, match="amsgrad=True"):
        CPUAdam([param]).load_state_dict(theirs.state_dict())


def test_parameters_elsewhere_are_refused() -> None:
    param = Parameter(torch.ones(1, device="meta"))
    param.grad = torch.ones(1, device="meta")
    with pytest.raises(ValueError, match="parameter on meta; expected the cpu"):
        CPUAdam([param]).step()


def test_sparse_gradients_are_refused() -> None:
    param = Parameter(torch.ones(3))
    param.grad = torch.ones(3).to_sparse()
    with pytest.raises(RuntimeError, match=r"torch.sparse_coo on cpu.*use torch.optim.SparseAdam"):
        CPUAdam([param]).step()
    assert param.tolist() == [1.0] * 3
