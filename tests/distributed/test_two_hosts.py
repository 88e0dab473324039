"""The page about several machines, on hosts that are network namespaces: torchrun's rendezvous, gloo, and shm between them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAM = """
import torch, torch.distributed as dist
import anyaccel.distributed
from torch.nn.parallel import DistributedDataParallel

for backend in ("gloo", "shm"):
    dist.init_process_group(backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    total = torch.full((1000,), float(rank + 1))
    dist.all_reduce(total)
    assert (total == world * (world + 1) / 2).all(), total
    gathered = [torch.empty(2) for _ in range(world)]
    dist.all_gather(gathered, torch.full((2,), float(rank)))
    assert [one[0].item() for one in gathered] == list(range(world))
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.full((1, 4), float(rank))).sum().backward()
    assert torch.allclose(model.module.weight.grad, torch.full((2, 4), (world - 1) / 2))
    if backend == "shm" and rank == 0:
        for path in anyaccel.distributed.paths():
            print(path, flush=True)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} of {world} on {__import__('socket').gethostname()}: {backend} ok", flush=True)
"""


def _missing() -> str:
    """Return why two hosts cannot be simulated here; empty when they can."""
    absent = [tool for tool in ("unshare", "nsenter", "ip", "mount") if shutil.which(tool) is None]
    if absent:
        return f"needs {', '.join(absent)}"
    user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    tried = subprocess.run(
        ["unshare", *user, "--mount", "--net", "--pid", "--fork", "ip", "link"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"this system lets no network namespace be made: {tried.stderr.strip()}" if tried.returncode else ""


def test_torchrun_meets_on_two_hosts_over_gloo_and_shm(tmp_path: Path) -> None:
    missing = _missing()
    if missing:
        pytest.skip(missing)
    (tmp_path / "train.py").write_text(PROGRAM)
    torchrun = f"{sys.executable} -W ignore -m torch.distributed.run --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d"
    command = f"{torchrun} --rdzv-endpoint=$MASTER:29400 --rdzv-id=run1 '{tmp_path}/train.py'"
    finished = subprocess.run(
        ["timeout", "-k", "5", "120", HERE / "two_hosts.sh", command], capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=tmp_path,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    for rank in range(4):
        for backend in ("gloo", "shm"):
            assert any(
                f"rank {rank} of 4 on node" in line and f"{backend} ok" in line for line in finished.stdout.splitlines()
            )
    assert finished.stdout.count("way='memory', reason='the ranks share memory'") == 2
    assert finished.stdout.count("way='gloo', reason='they differ in network namespace (") == 4
    assert "on node0" in finished.stdout
    assert "on node1" in finished.stdout
