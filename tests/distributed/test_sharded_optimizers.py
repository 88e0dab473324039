"""FSDP2 parameters: our optimizers step each rank's shard, and distributed checkpoints restore their states."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from anyaccel import ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ranks import Ranks

pytestmark = pytest.mark.filterwarnings("ignore")

MAKERS: dict[str, tuple[Any, Any]] = {
    "CPUAdam": (lambda params: ops.CPUAdam(params, lr=1e-2), lambda params: torch.optim.AdamW(params, lr=1e-2)),
    "FusedAdam": (lambda params: ops.FusedAdam(params, lr=1e-2), lambda params: torch.optim.AdamW(params, lr=1e-2)),
    "FusedSGD": (
        lambda params: ops.FusedSGD(params, lr=0.1, momentum=0.9),
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    ),
    "CPUAdagrad": (lambda params: ops.CPUAdagrad(params, lr=0.1), lambda params: torch.optim.Adagrad(params, lr=0.1)),
}


def sharded() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 33), nn.Tanh(), nn.Linear(33, 1))  # 33 rows, and one row, over two ranks
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return model


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, clip: Callable[..., Any]) -> list[float]:
    losses = []
    for step in steps:
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        clip(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses


def against_torch(name: str) -> Any:
    ours, theirs = MAKERS[name]
    found = []
    for make, clip in ((ours, ops.clip_grad_norm_), (theirs, nn.utils.clip_grad_norm_)):
        model = sharded()
        found.append(train(model, make(model.parameters()), range(4), clip))
    return found


def through_a_checkpoint(name: str) -> Any:
    make, _ = MAKERS[name]
    model = sharded()
    optimizer = make(model.parameters())
    train(model, optimizer, range(3), ops.clip_grad_norm_)
    holder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(holder)
    states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.save(states, checkpoint_id=holder[0])
    expected = train(model, optimizer, range(3, 6), ops.clip_grad_norm_)
    fresh = sharded()
    other = make(fresh.parameters())
    loaded = dict(zip(("model", "optimizer"), get_state_dict(fresh, other), strict=True))
    dcp.load(loaded, checkpoint_id=holder[0])
    set_state_dict(fresh, other, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    return expected, train(fresh, other, range(3, 6), ops.clip_grad_norm_)


def refusals() -> list[str]:
    said = []
    model = sharded()
    model(torch.ones(2, 16)).sum().backward()
    for param in model.parameters():
        param.grad = distribute_tensor(param.grad.full_tensor(), param.device_mesh, [Replicate()])
    for make in (ops.FusedLamb, ops.FusedAdam, ops.CPUAdam):
        try:
            make(model.parameters(), lr=1e-2).step()
        except RuntimeError as error:
            said.append(str(error))
    return said


def norms_over_two_mesh_dimensions() -> tuple[float, float]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shards", "columns"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 8))
    parallelize_module(model, mesh["columns"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    fully_shard(model, mesh=mesh["shards"])
    model(torch.ones(2, 16) * (1 + dist.get_rank() // 2)).square().sum().backward()
    expected = nn.utils.clip_grad_norm_(model.parameters(), 1e9).full_tensor()
    return ops.clip_grad_norm_(model.parameters(), 1.0).item(), expected.item()


def test_the_norm_is_that_of_all_shards_over_two_mesh_dimensions(ranks: Callable[[int], Ranks]) -> None:
    for ours, theirs in ranks(4).run(norms_over_two_mesh_dimensions):
        assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("name", MAKERS)
def test_losses_are_those_of_torchs_optimizer(ranks: Callable[[int], Ranks], name: str) -> None:
    for ours, theirs in ranks(2).run(against_torch, name):
        assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("name", MAKERS)
def test_a_checkpoint_is_resumed_bit_by_bit(ranks: Callable[[int], Ranks], name: str) -> None:
    for expected, resumed in ranks(2).run(through_a_checkpoint, name):
        assert resumed == expected


def test_what_would_be_wrong_is_refused(ranks: Callable[[int], Ranks]) -> None:
    for lamb, *others in ranks(2).run(refusals):
        assert "FusedLamb failed: got sharded parameters (DTensor); expected whole ones" in lamb
        assert len(others) == 2
        assert all(
            "step failed: got a gradient placed as (Replicate(),); expected (Shard(dim=0),)" in one for one in others
        )
