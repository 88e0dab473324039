"""What optimizers load, count, mark and refuse, beside torch's own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from anyaccel.ops import (
    CPUAdagrad,
    CPUAdam,
    CPULion,
    FusedAdam,
    FusedLamb,
    FusedLion,
    FusedSGD,
    clip_grad_norm_,
)

PAIRS: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "FusedAdam": (FusedAdam, torch.optim.AdamW, {}, "exp_avg"),
    "CPUAdam": (CPUAdam, torch.optim.AdamW, {}, "exp_avg"),
    "FusedSGD": (FusedSGD, torch.optim.SGD, {"momentum": 0.9}, "momentum_buffer"),
    "CPUAdagrad": (CPUAdagrad, torch.optim.Adagrad, {}, "sum"),
}
EVERY = (CPUAdagrad, CPUAdam, CPULion, FusedAdam, FusedLamb, FusedLion, FusedSGD)


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any, dict[str, Any], str]:
    return PAIRS[str(request.param)]


def _parameters(dtype: torch.dtype = torch.bfloat16) -> tuple[torch.nn.Parameter, torch.nn.Parameter]:
    a, b = (torch.nn.Parameter(torch.ones(1, dtype=dtype)) for _ in range(2))
    a.grad, b.grad = torch.ones_like(a), torch.full_like(b, 100.0)
    return a, b


def test_hooks_of_a_program_see_and_change_what_is_loaded(pair: tuple[Any, Any, dict[str, Any], str]) -> None:
    ours, theirs, options, key = pair
    found = []
    for kind in (theirs, ours):
        a, b = _parameters()
        first = kind([a, b], **options)
        first.step()
        swapped = kind([b, a], **options)
        swapped.register_load_state_dict_pre_hook(
            lambda _, saved: {**saved, "state": {0: saved["state"][1], 1: saved["state"][0]}}
        )
        swapped.load_state_dict(copy.deepcopy(first.state_dict()))
        reset = kind([a, b], **options)
        reset.register_load_state_dict_post_hook(lambda it, a=a: it.state[a][key].zero_())
        reset.load_state_dict(copy.deepcopy(first.state_dict()))
        found.append((float(swapped.state[b][key]), float(reset.state[a][key])))
    assert found[1] == pytest.approx(found[0], rel=1e-2)  # torch's states are bfloat16


def test_a_loaded_state_is_a_copy_in_float32(pair: tuple[Any, Any, dict[str, Any], str]) -> None:
    ours, theirs, options, key = pair
    for kind in (ours, theirs):
        a, b = _parameters(torch.float32)
        source = kind([a, b], **options)
        source.step()
        before = copy.deepcopy(source.state_dict()["state"])
        loaded = ours([a, b], **options)
        loaded.load_state_dict(source.state_dict())
        assert loaded.state[a][key].dtype == torch.float32
        loaded.step()
        assert str(source.state_dict()["state"]) == str(before)


@pytest.mark.parametrize("kind", [CPUAdam, FusedAdam])
def test_a_refused_state_dict_changes_nothing(kind: Any) -> None:
    a, b = _parameters(torch.float32)
    theirs = torch.optim.AdamW([a, b], amsgrad=True)
    theirs.step()
    ours = kind([a, b], lr=0.5)
    with pytest.raises(ValueError, match="amsgrad"):
        ours.load_state_dict(theirs.state_dict())
    assert ours.param_groups[0]["lr"] == 0.5
    assert not ours.state


def test_an_option_that_changes_no_result_is_no_reason_to_refuse() -> None:
    a, b = _parameters(torch.float32)
    theirs = torch.optim.AdamW([a, b], foreach=True)
    theirs.step()
    ours = CPUAdam([a, b])
    ours.load_state_dict(theirs.state_dict())
    ours.step()
    assert float(ours.state[a]["step"]) == 2


@pytest.mark.parametrize("kind", [CPUAdam, FusedAdam])
def test_what_belongs_to_no_parameter_is_kept_as_it_is(kind: Any) -> None:
    a, b = _parameters(torch.float32)
    optimizer = kind([a, b])
    optimizer.step()
    saved = optimizer.state_dict()
    saved["state"].update({"of all": {"step": 3}, "number": 7})
    optimizer.load_state_dict(saved)
    assert (optimizer.state["of all"], optimizer.state["number"]) == ({"step": 3}, 7)


@pytest.mark.parametrize("kind", [CPUAdam, FusedAdam])
def test_a_step_of_another_shape_counts(kind: Any) -> None:
    a, b = _parameters(torch.float32)
    optimizer = kind([a, b])
    optimizer.step()
    saved = optimizer.state_dict()
    saved["state"][0]["step"] = torch.ones(1)
    optimizer.load_state_dict(saved)
    optimizer.step()
    assert [float(optimizer.state[each]["step"]) for each in (a, b)] == [2, 2]


@pytest.mark.parametrize("kind", [each for each in EVERY if each not in (CPUAdagrad, FusedSGD)])
def test_betas_are_two(kind: Any) -> None:
    with pytest.raises(ValueError, match="betas"):
        kind(_parameters(), betas=(0.9, 0.99, 0.999))


@pytest.mark.parametrize("kind", [FusedAdam, FusedLion, FusedLamb, CPUAdagrad])
@pytest.mark.parametrize("spoil", ["inference", "int64"])
def test_a_step_that_cannot_be_counted_writes_nothing(kind: Any, spoil: str) -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    optimizer = kind([parameter])
    optimizer.step()
    with torch.inference_mode(spoil == "inference"):
        optimizer.state[parameter]["step"] = torch.ones(
            (), dtype=torch.float32 if spoil == "inference" else torch.int64
        )
    before = parameter.item()
    with pytest.raises(RuntimeError, match=r"can't be cast|Inplace update to inference tensor"):
        optimizer.step()
    assert parameter.item() == before


@pytest.mark.parametrize("kind", EVERY)
def test_a_gradient_that_is_lazily_negated_is_taken(kind: Any) -> None:
    """The gradient of a real part of a complex product."""
    parameter, plain = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    (torch.complex(torch.ones(1), parameter).conj() * (1 + 1j)).real.sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.is_neg()
    plain.grad = parameter.grad.resolve_neg()
    for each in (parameter, plain):
        kind([each]).step()
    assert torch.equal(parameter, plain)
    clip_grad_norm_(parameter, 0.5)
    assert parameter.grad.item() == pytest.approx(0.5 * plain.grad.sign().item(), rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((FusedSGD, {}), (FusedLion, {}), (CPUAdam, {})),
        *((FusedAdam, {"capturable": True}), (FusedLamb, {"capturable": True})),
    ],
)
def test_a_step_and_clipping_compile_as_one_graph(kind: Any, options: dict[str, Any]) -> None:
    torch._dynamo.reset()  # each optimizer is another program to it, of which it compiles eight
    eager, traced = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    plain, optimizer = kind([eager], lr=0.1, **options), kind([traced], lr=0.1, **options)

    def step() -> None:
        clip_grad_norm_(traced, 0.5)
        optimizer.step()

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    for _ in range(3):
        eager.grad, traced.grad = torch.ones(2), torch.ones(2)
        clip_grad_norm_(eager, 0.5)
        plain.step()
        compiled()
    assert torch.allclose(eager, traced)


@pytest.mark.parametrize("kind", [CPUAdam, FusedAdam])
@pytest.mark.parametrize("where", ["register_load_state_dict_pre_hook", "register_load_state_dict_post_hook"])
def test_a_hook_may_load_a_state_dict_itself(kind: Any, where: str) -> None:
    a, b = _parameters(torch.float32)
    optimizer = kind([a, b])
    optimizer.step()
    saved, loaded, seen = optimizer.state_dict(), kind([a, b]), []

    def hook(it: Any, *_: Any) -> None:
        if not seen:
            seen.append(1)
            it.load_state_dict(saved)

    getattr(loaded, where)(hook)
    loaded.load_state_dict(saved)
    assert float(loaded.state[a]["step"]) == 1
    assert len(loaded._optimizer_load_state_dict_pre_hooks) == (where == "register_load_state_dict_pre_hook")


@pytest.mark.parametrize("kind", [CPUAdam, FusedAdam])
def test_a_state_that_cannot_be_converted_changes_nothing(kind: Any) -> None:
    a, b = _parameters(torch.float32)
    optimizer = kind([a, b])
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][1]["step"] = "5"
    before = str(optimizer.state_dict())
    with pytest.raises((TypeError, ValueError)):
        optimizer.load_state_dict(saved)
    assert str(optimizer.state_dict()) == before


@pytest.mark.parametrize("kind", [CPUAdagrad, FusedAdam])
def test_a_step_compiles(kind: Any) -> None:
    eager, traced = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    for each in (eager, traced):
        each.grad = torch.ones(2)
    plain, optimizer = kind([eager]), kind([traced])
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        plain.step()
        step()
    assert torch.equal(eager, traced)


@pytest.mark.parametrize("kind", EVERY)
def test_autograd_notices_the_step_of_a_distributed_parameter(kind: Any, run_with_torch: Any) -> None:
    run_with_torch(f"""
import torch, torch.distributed as dist, warnings
warnings.simplefilter("ignore")
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from anyaccel.ops import {kind.__name__} as kind
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
p = torch.nn.Parameter(distribute_tensor(torch.ones(2), mesh, [Shard(0)]))
loss = (p * p).sum()
p.grad = distribute_tensor(torch.ones(2), mesh, [Shard(0)])
try:
    kind([p], lr=0.5).step()
except RuntimeError as error:
    assert "got sharded parameters" in str(error), error
else:
    try:
        loss.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("a wrong gradient")
dist.destroy_process_group()
""")
