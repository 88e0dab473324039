"""``deepspeed.comm`` with its ``CCLBackend``, which runs on our module where an accelerator names ``ccl``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    Run = Callable[..., subprocess.CompletedProcess[str]]

RANKS = """
import multiprocessing, os, sys
import anyaccel.integrations.deepspeed
import deepspeed, torch, torch.distributed as dist
import anyaccel
from anyaccel.integrations.deepspeed import served_ops
from deepspeed import comm
from deepspeed.comm.ccl import CCLBackend

state = sys.modules["deepspeed.comm.comm"]

class WithOneCCL(anyaccel.CPU_Accelerator):
    def communication_backend_name(self):
        return "ccl"

def weights_after_training(rank, stage):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    config = {
        "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}, "gradient_clipping": 0.5,
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for step in range(3):
        x = torch.randn(2, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        engine.backward(engine(x).square().sum())
        engine.step()
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])

def run(rank, world, backend, store):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group(backend, store=dist.FileStore(store, world), rank=rank, world_size=world)
    stages = (0, 2) if world == 2 else ()
    deepspeed.init_distributed()
    expected = [weights_after_training(rank, stage) for stage in stages]
    state.cdb = None
    anyaccel.set_accelerator(WithOneCCL())
    deepspeed.init_distributed()
    assert type(state.cdb) is CCLBackend and comm.get_world_size() == world
    assert [op.builder for op in served_ops() if op.source == "anyaccel"].count("CCLCommBuilder") == 1
    mine = torch.arange(5.0) + rank
    total = mine.clone()
    comm.all_reduce(total)
    torch.testing.assert_close(total, world * torch.arange(5.0) + sum(range(world)))
    comm.inference_all_reduce(mine)
    assert torch.equal(mine, total)
    for ranks in ([0, world - 1], list(range(1, world))):
        group = comm.new_group(ranks)
        if rank in ranks:
            value = torch.tensor([rank])
            comm.all_reduce(value, op=comm.ReduceOp.MAX, group=group)
            assert value.item() == ranks[-1]
            value = torch.tensor([rank])
            comm.broadcast(value, src=ranks[-1], group=group)
            assert value.item() == ranks[-1]
            comm.barrier(group=group)
    every = [torch.zeros(1) for _ in range(world)]
    comm.all_gather(every, torch.tensor([float(rank)]))  # which deepspeed leaves to torch.distributed
    assert torch.cat(every).tolist() == list(range(world))
    for stage, weights in zip(stages, expected):
        torch.testing.assert_close(weights_after_training(rank, stage), weights, rtol=1e-6, atol=1e-6)
    comm.barrier()
    dist.destroy_process_group()

fork = multiprocessing.get_context("fork")  # deepspeed's import takes seconds
for world, backend in ((2, "gloo"), (4, "shm")):
    processes = [fork.Process(target=run, args=(rank, world, backend, f"store{world}")) for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * world
"""


@pytest.mark.filterwarnings("ignore")
def test_collectives_and_training_on_deepspeeds_ccl_backend(run_python: Run) -> None:
    run_python(RANKS, DS_ACCELERATOR="cpu", CCL_ROOT="")
