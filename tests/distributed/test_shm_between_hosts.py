"""A group between hosts does what one on one host does: the same cases, on ranks of two hosts that share no memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist

from . import test_shm_collectives as collectives
from . import test_shm_frameworks as frameworks
from .soak import soak

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ranks import Ranks

HOSTS = "aabb"
DTYPES = (*collectives.FLOATS, *collectives.INTEGERS, *collectives.COMPLEX, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_reduce_of_every_dtype_with_every_operation(ranks_on: Callable[[str], Ranks], dtype: torch.dtype) -> None:
    cases = ranks_on(HOSTS).run(collectives.everything_is_reduced, dtype)
    assert cases == [3 * sum(collectives.supports(op, dtype) for op in collectives.OPS)] * len(HOSTS)


@pytest.mark.parametrize("dtype", [*DTYPES, *collectives.MOVED_ONLY], ids=str)
def test_every_dtype_is_moved_bit_by_bit(ranks_on: Callable[[str], Ranks], dtype: torch.dtype) -> None:
    ranks_on(HOSTS).run(collectives.everything_is_moved, dtype)


@pytest.mark.parametrize("hosts", ["abba", "aba", "abc"])
@pytest.mark.parametrize("size", [0, 1, 4097, 200_003])
def test_every_collective(ranks_on: Callable[[str], Ranks], hosts: str, size: int) -> None:
    ranks_on(hosts).run(collectives.all_collectives, size)


def reductions_in_parts() -> None:
    """Of 8 MiB and more, which go between the hosts in parts, beside a message and other operations in flight."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for count in ((2 << 20) - 1, 2 << 20, (3 << 20) + 7):
        base = torch.arange(count, dtype=torch.float32) % 1000
        of_ranks = [base * (one + 1) for one in range(world)]
        for op, expected in (
            (dist.ReduceOp.SUM, sum(of_ranks)),
            (dist.ReduceOp.MAX, of_ranks[-1]),
            (dist.ReduceOp.AVG, sum(of_ranks) / world),
        ):
            x, small = of_ranks[rank].clone(), torch.full((3,), float(rank))
            works = [dist.all_reduce(x, op, async_op=True), dist.all_reduce(small, async_op=True)]
            [work.wait() for work in works]
            assert x.equal(expected), (count, op)
            assert small.eq(sum(range(world))).all()
            for root in range(world):
                y = of_ranks[rank].clone()
                dist.reduce(y, root, op)
                assert y.equal(expected if rank == root else of_ranks[rank]), (count, op, root)


@pytest.mark.parametrize("hosts", ["aabb", "abba", "abc"])
def test_large_reductions_go_between_hosts_in_parts(ranks_on: Callable[[str], Ranks], hosts: str) -> None:
    ranks_on(hosts).run(reductions_in_parts)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "case",
    [
        collectives.uneven, collectives.non_contiguous, collectives.coalesced, collectives.sparse, collectives.same_tag,
        collectives.coalesced_mixtures, collectives.scaled_sums, collectives.many_in_flight, collectives.facts,
        collectives.part_of_its_result,
    ],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_it_is_as_on_one_host(ranks_on: Callable[[str], Ranks], case: Callable[[], None]) -> None:
    ranks_on(HOSTS).run(case)


@pytest.mark.parametrize("name", [function.__name__ for function in frameworks.TRAINED])
def test_frameworks_results_equal_gloos(ranks_on: Callable[[str], Ranks], name: str) -> None:
    assert ranks_on("ab").run(frameworks.on, "shm", name) == ranks_on("ab").run(frameworks.on, "gloo", name)


def test_hybrid_sharding(ranks_on: Callable[[str], Ranks]) -> None:
    assert all(len(losses) == 3 for losses in ranks_on(HOSTS).run(frameworks.hybrid))


def test_a_random_soak_equals_gloo(ranks_on: Callable[[str], Ranks]) -> None:
    assert sum(ranks_on(HOSTS).run(soak, 300, 2)[0].values()) == 300


LARGE = 3 << 20  # in parts


def extremes_with_nan(kind: torch.dtype) -> None:
    """On any rank, in the first, a middle and the last place; the other numbers are as before."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for count in (5, 1000, LARGE if kind == torch.float32 else 70_000):
        for where in range(world):
            for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX):
                x = torch.arange(count).remainder(97).sub(rank).to(kind)
                expected = torch.arange(count).remainder(97).sub(world - 1 if op == dist.ReduceOp.MIN else 0).to(kind)
                places = [0, count // 2, count - 1]
                expected[places] = float("nan")
                if rank == where:
                    x[places] = float("nan")
                y = x.clone()
                dist.all_reduce(x, op)
                assert x.equal(expected) or x.allclose(expected, 0, 0, equal_nan=True), (count, where, op)
                dist.reduce(y, world - 1, op)
                assert rank != world - 1 or y.allclose(expected, 0, 0, equal_nan=True), (count, where, op)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("hosts", ["aa", "aab", pytest.param("abb", marks=pytest.mark.slow)])
def test_the_smallest_and_largest_of_a_nan_is_a_nan(
    ranks_on: Callable[[str], Ranks], hosts: str, kind: torch.dtype
) -> None:
    ranks_on(hosts).run(extremes_with_nan, kind)


def averages_of_large_halves() -> None:
    for count in (5, 1000, 5_000_000):
        for value in (7.0, 0.1, 40_000.0, 65_504.0):  # what all ranks have is the average, in every bit
            x = torch.full((count,), value, dtype=torch.float16)
            y = x.clone()
            dist.all_reduce(y, dist.ReduceOp.AVG)
            assert y.equal(x), (count, value, y[0])


@pytest.mark.parametrize("hosts", ["aaa", "aab", "abc"])
def test_an_average_is_finite_where_the_sum_is_not(ranks_on: Callable[[str], Ranks], hosts: str) -> None:
    ranks_on(hosts).run(averages_of_large_halves)
