"""shm against gloo, for each operation, by the same ranks in turn; with the limits of the machine."""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from harness import show
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import anyaccel.distributed  # noqa: F401  # registers "shm"
from anyaccel.op_builder import CPUOpBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Call = Callable[[], object]


class LimitsBuilder(CPUOpBuilder):
    """Builds ``comm_limits.cpp``."""

    NAME = "comm_limits"
    SOURCES = ("comm_limits.cpp",)
    STABLE_ABI = True


@dataclass(frozen=True)
class Row:
    """A measurement: calls by name, which every rank makes at the same time."""

    name: str
    calls: dict[str, Call]
    repeats: int
    target: float  # share of gloo's time, at 2 ranks


EXCHANGES = 1000
"""The number of cache lines in a call of the limit: the call itself takes longer than one exchange."""


SIZES = {"8 B": 8, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
TARGETS = {"8 B": 1 / 20, "64 KiB": 1 / 12, "1 MiB": 1 / 4, "64 MiB": 1 / 3}


def all_reduces(sizes: dict[str, int], groups: dict[str, Any], limits: Any, lines: torch.Tensor) -> Iterator[Row]:
    for label, size_bytes in sizes.items():
        repeats = max(3, min(400, (32 << 20) // size_bytes))
        x = torch.zeros(size_bytes // 4)
        calls: dict[str, Call] = {name: partial(dist.all_reduce, x, group=group) for name, group in groups.items()}
        if size_bytes <= 8:
            calls["floor"] = partial(dist.all_reduce, x, group=_fake)
            if dist.get_world_size() == 2:
                calls["limit"] = partial(limits.exchange, lines, dist.get_rank(), EXCHANGES)
        else:
            calls["limit"] = partial(limits.copy, torch.zeros_like(x), x)
        yield Row(f"all_reduce {label}", calls, repeats, TARGETS.get(label, 1))


def others(groups: dict[str, Any], peer: int = 1) -> Iterator[Row]:
    """Return the rows of other operations; messages go between rank 0 and ``peer``."""
    world, rank, count = dist.get_world_size(), dist.get_rank(), 1 << 18
    x, y, all_of = torch.zeros(count), torch.zeros(count), torch.zeros(count * world)
    parts = count // world * world
    shapes: dict[str, Callable[[Any], object]] = {
        "broadcast 1 MiB": lambda group: dist.broadcast(x, 0, group=group),
        "all_gather 1 MiB": lambda group: dist.all_gather_into_tensor(all_of, x, group=group),
        "reduce_scatter 1 MiB": lambda group: dist.reduce_scatter_tensor(x, all_of, group=group),
        "all_to_all 1 MiB": lambda group: dist.all_to_all_single(y[:parts], x[:parts], group=group),
    }
    for name, call in shapes.items():
        yield Row(name, {key: (lambda group=group, call=call: call(group)) for key, group in groups.items()}, 20, 1 / 2)
    yield Row(
        "barrier", {key: (lambda group=group: dist.barrier(group=group)) for key, group in groups.items()}, 200, 1 / 15
    )
    small = torch.zeros(2)

    def there_and_back(group: Any) -> None:
        if rank == 0:
            dist.send(small, peer, group=group)
            dist.recv(small, peer, group=group)
        elif rank == peer:
            dist.recv(small, 0, group=group)
            dist.send(small, 0, group=group)

    calls: dict[str, Call] = {key: (lambda group=group: there_and_back(group)) for key, group in groups.items()}
    yield Row("send/recv 8 B, there and back", calls, 200, 1 / 6)


def beside_a_thread(groups: dict[str, Any]) -> Row:
    """A reduction while another thread of each rank computes in Python and holds Python's lock, for 5 ms at a time."""
    x = torch.zeros(16 << 20)

    def call(group: Any) -> None:
        is_over = threading.Event()

        def compute() -> None:
            while not is_over.is_set():
                sum(range(1000))

        thread = threading.Thread(target=compute)
        thread.start()
        try:
            dist.all_reduce(x, group=group)
        finally:
            is_over.set()
            thread.join()

    calls: dict[str, Call] = {name: partial(call, group) for name, group in groups.items()}
    return Row("all_reduce 64 MiB beside a busy thread", calls, 3, 1)


def data_parallel(groups: dict[str, Any]) -> Row:
    def stepper(group: Any) -> Call:
        torch.manual_seed(0)
        layers = [nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1920)]
        model = DistributedDataParallel(nn.Sequential(*layers), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batch = torch.randn(64, 1024)

        def step() -> None:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

        return step

    return Row("DDP step, 10 M parameters", {key: stepper(group) for key, group in groups.items()}, 2, 1 / 1.15)


def timed(row: Row, rounds: int) -> dict[str, float]:
    """Return the median time of each call in seconds, which is that of the slowest rank.

    All ranks start every round together, in the same random order.
    """
    shuffle = random.Random(row.name).shuffle
    order = list(row.calls.items())
    times: dict[str, list[float]] = {name: [] for name in row.calls}
    for _ in range(rounds):
        shuffle(order)
        for name, call in order:
            is_exchange = name == "limit" and row.name == "all_reduce 8 B"  # otherwise a copy
            repeats = 1 if is_exchange else row.repeats
            call()
            dist.barrier()
            started = time.perf_counter()
            for _ in range(repeats):
                call()
            slowest = torch.tensor(time.perf_counter() - started, dtype=torch.float64)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)  # the root of a broadcast is done before the others have it
            times[name].append(slowest.item() / repeats / (EXCHANGES if is_exchange else 1))
    return {name: statistics.median(found) for name, found in times.items()}


_fake: Any = None


def new_groups() -> Row:
    def make(backend: str) -> None:
        group = dist.new_group(backend=backend)
        dist.barrier()  # another rank of gloo's may still connect
        dist.destroy_process_group(group)

    return Row("new_group, and its end", {name: partial(make, name) for name in ("shm", "gloo")}, 10, 1)


def rank_main(
    rank: int, world: int, folder: str, rounds: int, sizes: dict[str, int] | None, only: str, results: Any
) -> None:
    global _fake
    import torch.testing._internal.distributed.fake_pg  # registers "fake"

    torch.set_num_threads(1)
    dist.init_process_group("shm", store=dist.FileStore(f"{folder}/store", world), rank=rank, world_size=world)
    groups = {"shm": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    _fake = dist.new_group(backend="fake")
    limits = LimitsBuilder().load()
    lines = torch.from_file(f"{folder}/lines", shared=True, size=32, dtype=torch.int64)
    dist.barrier()
    rest = (
        [
            lambda: others(groups),
            lambda: [beside_a_thread(groups)],
            lambda: [data_parallel(groups)],
            lambda: [new_groups()],
        ]
        if sizes is None
        else []
    )
    for make in (lambda: all_reduces(sizes or SIZES, groups, limits, lines), *rest):
        for row in make():
            if only not in row.name:
                continue
            found = timed(row, rounds)
            if rank == 0:
                results.put((world, row.name, row.target, found))
    dist.destroy_process_group()


def measured(
    world: int, rounds: int, sizes: dict[str, int] | None = None, only: str = ""
) -> list[tuple[int, str, float, dict[str, float]]]:
    """Return number of ranks, name, target and times of every row; with ``sizes``, of all_reduce only."""
    results = multiprocessing.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(rank_main, (world, folder, rounds, sizes, only, results), world)
    rows = []
    while not results.empty():
        rows.append(results.get())
    return rows


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="part of the operations' names; results of others are kept")
    chosen = parser.parse_args()
    columns = [
        "ranks",
        "operation",
        "shm µs",
        "gloo µs",
        "gloo / shm",
        "target",
        "limit µs",
        "of the limit",
        "Python's floor µs",
    ]
    rows = []
    for world in (2, 4):
        for _, name, target, found in measured(world, chosen.rounds, only=chosen.only):
            limit, wanted = found.get("limit"), 1 / target if world == 2 else 1.0
            rows.append([
                str(world), name, _microseconds(found["shm"]), _microseconds(found["gloo"]),
                f"{found['gloo'] / found['shm']:.2f}", f"{wanted:.2f}", _microseconds(limit),
                f"{limit / found['shm']:.0%}" if limit else "", _microseconds(found.get("floor")),
            ])  # fmt: skip
    show("comm", "shm and gloo, ranks on one host, medians", columns, rows, identity=2)


if __name__ == "__main__":
    main()
