"""``ring_all_reduce`` of 64 MiB over gloo and over shm, against gloo's own all_reduce."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from bench_comm import Row, timed
from harness import show

from anyaccel.distributed import ring_all_reduce

COUNT = 1 << 24


def rank_main(rank: int, world: int, folder: str, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("shm", store=dist.FileStore(f"{folder}/store", world), rank=rank, world_size=world)
    gloo = dist.new_group(backend="gloo")
    x = torch.zeros(COUNT)
    calls = {
        "gloo's all_reduce": partial(dist.all_reduce, x, group=gloo),
        "ring over gloo": partial(ring_all_reduce, x, gloo),
        "ring over shm": partial(ring_all_reduce, x),
    }
    found = timed(Row("ring", calls, 2, 1.0), rounds=9)
    if rank == 0:
        results.put(found)
    dist.destroy_process_group()


def main() -> None:
    rows = []
    for world in (2, 4):
        results = multiprocessing.get_context("spawn").SimpleQueue()
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.spawn(rank_main, (world, folder, results), world)
        peer, by_gloo, by_shm = results.get().values()
        rows.append([
            str(world), *(f"{seconds * 1e3:.1f}" for seconds in (peer, by_gloo, by_shm)), f"{peer / by_gloo:.2f}",
            f"{peer / by_shm:.2f}",
        ])  # fmt: skip
    columns = [
        "ranks", "gloo's all_reduce ms", "ring over gloo ms", "ring over shm ms", "gloo / ring over gloo",
        "gloo / ring over shm",
    ]  # fmt: skip
    show("ring", "A ring of messages, 64 MiB of float32", columns, rows)


if __name__ == "__main__":
    main()
