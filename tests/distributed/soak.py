"""Random operations on shm, each compared with gloo's result or, if gloo rejects it, with arithmetic done here.

    python -m tests.distributed.soak --operations 10000 --ranks 4 --seed 0

Every rank draws the same operations from the seed, and has its own data.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .ranks import Ranks, gloo

if TYPE_CHECKING:
    from collections.abc import Callable

_DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.int16,
)
_SIZES = (0, 1, 2, 7, 255, 4096, 4097, 65_536, 100_003, 300_001)
_IN_FLIGHT = 16


def _data(kind: torch.dtype, size: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if kind.is_floating_point:
        return torch.randn(size, generator=generator).to(kind)
    return torch.randint(0, 50, (size,), generator=generator).to(kind)


class Soak:
    """The work of one rank."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.order = random.Random(seed + dist.get_rank() + 1)  # noqa: S311
        self.world = dist.get_world_size()
        self.rank = dist.get_rank()
        everyone = list(range(self.world))
        self.groups = [(everyone, dist.group.WORLD, gloo())]
        for members in (everyone[1:], everyone[:2], everyone[::-1][:2]):
            ordered = sorted(members)
            self.groups.append((ordered, dist.new_group(ordered), dist.new_group(ordered, backend="gloo")))
        self.pending: deque[tuple[Any, Callable[[], None]]] = deque()

    def run(self, operations: int) -> dict[str, int]:
        done: dict[str, int] = {}
        for number in range(operations):
            members, shm, peer = self.random.choice(self.groups)
            kind = self.random.choice((self.all_reduce, self.all_reduce, self.broadcast, self.all_gather, self.reduce,
                                       self.reduce_scatter, self.all_to_all, self.gather, self.scatter, self.messages,
                                       self.barrier))  # fmt: skip
            dtype, size, is_async = self.random.choice(_DTYPES), self.random.choice(_SIZES), self.random.random() < 0.5
            root = self.random.choice(members)
            if self.rank in members:
                kind(members, shm, peer, dtype, size, root, is_async, number)
            done[kind.__name__] = done.get(kind.__name__, 0) + 1
            while len(self.pending) > (_IN_FLIGHT if number % 64 else 0):
                self._finish()
        while self.pending:
            self._finish()
        return done

    def _finish(self) -> None:
        index = self.order.randrange(len(self.pending))  # the order of waiting is random, and differs between ranks
        work, check = self.pending[index]
        del self.pending[index]
        if work is not None:
            work.wait()
        check()

    def _keep(self, work: Any) -> None:
        self.pending.append((work, lambda: None))

    def _close(self, work: Any, got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
        def check() -> None:
            loose = {torch.bfloat16: 4e-2, torch.float16: 4e-3}.get(got.dtype, 1e-5)
            torch.testing.assert_close(got, expected, rtol=loose, atol=loose, msg=lambda text: f"{what}: {text}")

        self.pending.append((work, check))

    def all_reduce(self, members, shm, peer, dtype, size, root, is_async, number) -> None:
        tensors = [_data(dtype, size, number * 64 + rank) for rank in members]
        mine = tensors[members.index(self.rank)].clone()
        op = (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN)[number % 3]
        work = dist.all_reduce(mine, op, group=shm, async_op=is_async)
        stacked = torch.stack(
            [one.float() if dtype.is_floating_point and dtype.itemsize == 2 else one for one in tensors]
        )
        if dtype == torch.int16 or size > 4097:  # gloo rejects int16, and is slow on large sizes
            expected = (
                stacked.sum(0),
                stacked.amax(0) if size else stacked.sum(0),
                stacked.amin(0) if size else stacked.sum(0),
            )[number % 3].to(dtype)
        else:
            expected = tensors[members.index(self.rank)].clone()
            dist.all_reduce(expected, op, group=peer)
        self._close(work, mine, expected, f"#{number} all_reduce {dtype} {size} {op} {members}")

    def broadcast(self, members, shm, peer, dtype, size, root, is_async, number) -> None:
        mine = _data(dtype, size, number * 64 + self.rank)
        work = dist.broadcast(mine, root, group=shm, async_op=is_async)
        self._close(work, mine, _data(dtype, size, number * 64 + root), f"#{number} broadcast")

    def reduce(self, members, shm, peer, dtype, size, root, is_async, number) -> None:
        dtype = torch.float32 if dtype == torch.int16 else dtype
        mine = _data(dtype, size, number * 64 + self.rank)
        expected, before = mine.clone(), mine.clone()
        work = dist.reduce(mine, root, group=shm, async_op=is_async)
        dist.reduce(expected, root, group=peer)
        self._close(work, mine, expected if self.rank == root else before, f"#{number} reduce")

    def all_gather(self, members, shm, peer, dtype, size, root, is_async, number) -> None:
        outputs = [torch.zeros(size, dtype=dtype) for _ in members]
        work = dist.all_gather(outputs, _data(dtype, size, number * 64 + self.rank), group=shm, async_op=is_async)
        for rank, output in zip(members, outputs, strict=True):
            self._close(work, output, _data(dtype, size, number * 64 + rank), f"#{number} all_gather")

    def reduce_scatter(self, members, shm, peer, dtype, size, root, is_async, number) -> None:
        n = len(members)
        inputs = {rank: _data(torch.float64, size * n, number * 64 + rank) for rank in members}
        output = torch.zeros(size, dtype=torch.float64)
        work = dist.reduce_scatter_tensor(output, inputs[self.rank], group=shm, async_op=is_async)
        me = members.index(self.rank)
        expected = sum(one.view(n, size)[me] for one in inputs.values())
        self._close(work, output, expected, f"#{number} reduce_scatter")

    def all_to_all(self, members, shm, peer, dtype, size, root, is_async, number) -> None:
        sizes = [
            [(i * 7 + j * 3 + size) % 5 * (size // 4 + 1) for j in range(len(members))] for i in range(len(members))
        ]
        me = members.index(self.rank)
        mine = _data(dtype, sum(sizes[me]), number * 64 + self.rank)
        receives = [row[me] for row in sizes]
        output = torch.zeros(sum(receives), dtype=dtype)
        work = dist.all_to_all_single(output, mine, receives, sizes[me], group=shm, async_op=is_async)
        parts = [
            _data(dtype, sum(row), number * 64 + rank).split(row)[me] for rank, row in zip(members, sizes, strict=True)
        ]
        self._close(work, output, torch.cat(parts), f"#{number} all_to_all")

    def gather(self, members, shm, peer, dtype, size, root, is_async, number) -> None:
        outputs = [torch.zeros(size, dtype=dtype) for _ in members] if self.rank == root else None
        work = dist.gather(_data(dtype, size, number * 64 + self.rank), outputs, root, group=shm, async_op=is_async)
        self._keep(work)
        for rank, output in zip(members, outputs or (), strict=False):
            self._close(work, output, _data(dtype, size, number * 64 + rank), f"#{number} gather")

    def scatter(self, members, shm, peer, dtype, size, root, is_async, number) -> None:
        inputs = [_data(dtype, size, number * 64 + rank) for rank in members] if self.rank == root else None
        output = torch.zeros(size, dtype=dtype)
        work = dist.scatter(output, inputs, root, group=shm, async_op=is_async)
        self._close(work, output, _data(dtype, size, number * 64 + self.rank), f"#{number} scatter")

    def messages(self, members, shm, peer, dtype, size, root, is_async, number) -> None:
        """Send two messages to the next rank, which receives them in reverse order of tags."""
        me, n = members.index(self.rank), len(members)
        following, before = members[(me + 1) % n], members[(me - 1) % n]
        for tag in (number % 7, number % 7 + 10):
            work = dist.isend(_data(dtype, size, number * 64 + self.rank + tag), following, group=shm, tag=tag)
            self._keep(work)
        for tag in (number % 7 + 10, number % 7):
            output = torch.zeros(size, dtype=dtype)
            work = dist.irecv(output, before, group=shm, tag=tag)
            self._close(work, output, _data(dtype, size, number * 64 + before + tag), f"#{number} message {tag}")

    def barrier(self, members, shm, peer, dtype, size, root, is_async, number) -> None:
        self._keep(dist.barrier(group=shm, async_op=is_async))


def soak(operations: int, seed: int) -> dict[str, int]:
    """Run a rank's work, and return the number of operations of each kind."""
    return Soak(seed).run(operations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    ranks = Ranks(chosen.ranks)
    started = time.perf_counter()
    done = ranks.run(soak, chosen.operations, chosen.seed)[0]
    print(f"{sum(done.values())} operations in {time.perf_counter() - started:.0f} s, seed {chosen.seed}: {done}")
    ranks.close()


if __name__ == "__main__":
    main()
