"""Training frameworks on shm and on gloo, with the same ranks: the results are equal."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from .ranks import gloo

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ranks import Ranks

pytestmark = pytest.mark.filterwarnings("ignore")


def model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def batch(step: int) -> torch.Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(step * 10 + dist.get_rank()))


def train(wrapped: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> list[float]:
    losses = []
    for step in range(steps):
        loss = wrapped(batch(step)).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def mesh_of(group: dist.ProcessGroup) -> DeviceMesh:
    return DeviceMesh.from_group(group, "cpu", mesh_dim_names=("ranks",))


def ddp(group: dist.ProcessGroup) -> Any:
    wrapped = DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    losses = train(wrapped, optimizer)
    with wrapped.no_sync():
        wrapped(batch(7)).sum().backward()
    wrapped(batch(8)).sum().backward()
    return losses, [parameter.grad.sum().item() for parameter in wrapped.parameters()]


def ddp_join(group: dist.ProcessGroup) -> Any:
    wrapped = DistributedDataParallel(model(), process_group=group)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    with Join([wrapped]):
        losses = train(wrapped, optimizer, steps=2 + 2 * dist.get_rank())
    return losses, wrapped.module[0].weight.sum().item()


def ddp_hooks(group: dist.ProcessGroup) -> Any:
    losses = []
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        wrapped = DistributedDataParallel(model(), process_group=group)
        wrapped.register_comm_hook(group, hook)
        losses.append(train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1)))
    return losses


def fsdp1(group: dist.ProcessGroup) -> Any:
    half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    losses = []
    for precision in (None, half):
        wrapped = FullyShardedDataParallel(
            model(), process_group=group, mixed_precision=precision, device_id=torch.device("cpu")
        )
        losses.append(train(wrapped, torch.optim.Adam(wrapped.parameters(), lr=0.01)))
    return losses


def fsdp2(group: dist.ProcessGroup) -> Any:
    losses = []
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for policy in (MixedPrecisionPolicy(), half):
        wrapped = model()
        for layer in wrapped:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh_of(group), mp_policy=policy)
        fully_shard(wrapped, mesh=mesh_of(group), mp_policy=policy)
        losses.append(train(wrapped, torch.optim.Adam(wrapped.parameters(), lr=0.01)))
    return losses


def zero(group: dist.ProcessGroup) -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer  # its module warns when it is imported

    wrapped = DistributedDataParallel(model(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.Adam, process_group=group, lr=0.01)
    return train(wrapped, optimizer), [parameter.sum().item() for parameter in wrapped.parameters()]


def tensor_parallel(group: dist.ProcessGroup) -> Any:
    mesh = mesh_of(group)
    whole = torch.arange(24.0).view(6, 4)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    moved = [sharded.redistribute(mesh, [to]).to_local().tolist() for to in (Replicate(), Shard(1))]
    partial = torch.distributed.tensor.DTensor.from_local(whole, mesh, [Partial()])
    moved.append(partial.redistribute(mesh, [Shard(0)]).to_local().tolist())
    wrapped = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.manual_seed(1)
    output = wrapped(torch.randn(8, 16))
    output.sum().backward()
    return moved, output.sum().item(), wrapped[0].weight.grad.full_tensor().sum().item()


def checkpoint(group: dist.ProcessGroup) -> Any:
    wrapped = model()
    fully_shard(wrapped, mesh=mesh_of(group))
    holder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(holder, group=group)
    state = wrapped.state_dict()
    dcp.save(state, checkpoint_id=holder[0], process_group=group)
    other = model(seed=5)
    fully_shard(other, mesh=mesh_of(group))
    loaded = other.state_dict()
    dcp.load(loaded, checkpoint_id=holder[0], process_group=group)
    equal = all(torch.equal(loaded[key].to_local(), state[key].to_local()) for key in state)
    files = len(list(Path(holder[0]).iterdir()))
    return equal, files


def under_compile(group: dist.ProcessGroup) -> Any:
    name = group.group_name

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x: torch.Tensor) -> torch.Tensor:
        summed = functional.all_reduce(x * 2, "sum", name)
        gathered = functional.all_gather_tensor(summed, 0, name)
        return functional.reduce_scatter_tensor(gathered, "sum", 0, name) + 1

    return step(torch.arange(4.0) + dist.get_rank()).tolist()


def pipeline(group: dist.ProcessGroup) -> Any:
    rank = dist.get_rank()
    torch.manual_seed(0)
    parts = [nn.Linear(16, 16), nn.Linear(16, 16)]
    stage = PipelineStage(parts[rank], rank, 2, torch.device("cpu"), group=group)
    losses: list[torch.Tensor] = []
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).square().mean())
    for _ in range(2):
        if rank == 0:
            schedule.step(batch(3))
        else:
            schedule.step(target=torch.zeros(8, 16), losses=losses)
    return parts[rank].weight.grad.sum().item(), [loss.item() for loss in losses]


def objects(group: dist.ProcessGroup) -> Any:
    rank, world = dist.get_rank(), dist.get_world_size()
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank * 1000}, group=group)
    sent = [{"from": 1}] if rank == 1 else [None]
    dist.broadcast_object_list(sent, 1, group=group)
    scattered: list[Any] = [None]
    dist.scatter_object_list(scattered, [f"for {one}" for one in range(world)] if rank == 0 else None, 0, group=group)
    collected: list[Any] | None = [None] * world if rank == 0 else None
    dist.gather_object(rank * 11, collected, 0, group=group)
    if rank == 0:
        dist.send_object_list([{"answer": 42}], 1, group=group)
    message: list[Any] = [None]
    if rank == 1:
        dist.recv_object_list(message, 0, group=group)
    return gathered, sent, scattered, collected, message


def batched_messages(group: dist.ProcessGroup) -> Any:
    rank, world = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % world, (rank - 1) % world
    got = [torch.empty(5), torch.empty(300_000)]
    operations = [
        dist.P2POp(dist.isend, torch.full((5,), float(rank)), after, group, tag=1),
        dist.P2POp(dist.isend, torch.full((300_000,), rank + 0.5), after, group, tag=2),
        dist.P2POp(dist.irecv, got[1], before, group, tag=2),
        dist.P2POp(dist.irecv, got[0], before, group, tag=1),
    ]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    anyone = torch.empty(1)
    if rank == 0:
        senders = sorted((dist.recv(anyone, group=group), anyone.item()) for _ in range(world - 1))
    else:
        senders = None
        dist.send(torch.tensor([rank * 2.0]), 0, group=group)
    return [one.unique().tolist() for one in got], senders


TRAINED = (
    ddp, ddp_join, ddp_hooks, fsdp1, fsdp2, zero, tensor_parallel, checkpoint, under_compile, pipeline, objects,
    batched_messages,
)  # fmt: skip


def on(backend: str, name: str) -> Any:
    group = gloo() if backend == "gloo" else dist.group.WORLD
    return globals()[name](group)


@pytest.mark.parametrize("name", [function.__name__ for function in TRAINED])
def test_results_equal_gloos(ranks: Callable[[int], Ranks], name: str) -> None:
    here = ranks(2).run(on, "shm", name)
    assert here == ranks(2).run(on, "gloo", name)
    assert all(one is not None for one in here)


def hybrid() -> list[float]:
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    assert dist.get_backend(mesh.get_group("shard")) == "shm"
    wrapped = FullyShardedDataParallel(
        model(), device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_id=torch.device("cpu")
    )
    first = train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1))
    other = model()
    fully_shard(other, mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))
    second = train(other, torch.optim.SGD(other.parameters(), lr=0.1))
    plain = DistributedDataParallel(model(), process_group=gloo())
    expected = train(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    torch.testing.assert_close(torch.tensor([first, second]), torch.tensor([expected, expected]), rtol=1e-5, atol=1e-7)
    return first


def test_hybrid_sharding_equals_data_parallelism_on_gloo(ranks: Callable[[int], Ranks]) -> None:
    assert all(len(losses) == 3 for losses in ranks(4).run(hybrid))


def profiled() -> list[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.ones(4), 0)
        dist.all_gather_into_tensor(torch.empty(8), torch.ones(4))
        dist.barrier()
        peer = 1 - dist.get_rank()
        request = dist.isend(torch.ones(2), peer)
        dist.recv(torch.empty(2), peer)
        request.wait()
    return sorted({event.key for event in profiler.key_averages() if event.key.startswith("shm:")})


def test_the_profiler_shows_operations_by_name(ranks: Callable[[int], Ranks]) -> None:
    expected = ["shm:_all_gather_base", "shm:all_reduce", "shm:barrier", "shm:broadcast", "shm:recv", "shm:send"]
    assert ranks(2).run(profiled) == [expected] * 2
