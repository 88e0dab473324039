"""The ring against ``dist.all_reduce``, on both backends, and when a rank dies."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist

from anyaccel.distributed import ring_all_reduce

from .ranks import gloo

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ranks import Ranks, Scripts


def on_both(size: int, dtype: torch.dtype, chunk_bytes: int) -> list[float]:
    values = torch.randn(size, generator=torch.Generator().manual_seed(dist.get_rank())).to(dtype)
    expected = values.float().clone()
    dist.all_reduce(expected)
    sums = []
    for group in (dist.group.WORLD, gloo()):
        mine = values.clone()
        assert ring_all_reduce(mine, group, chunk_bytes=chunk_bytes) is mine
        loose = 1e-5 if dtype == torch.float32 else 4e-2
        torch.testing.assert_close(mine.float(), expected, rtol=loose, atol=loose)
        sums.append(mine.double().sum().item())
    return sums


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("size", [0, 1, 7, 1_000_003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_ring_sums_any_length(ranks: Callable[[int], Ranks], world: int, size: int, dtype: torch.dtype) -> None:
    first, *others = ranks(world).run(on_both, size, dtype, 1 << 18)
    assert others == [first] * (world - 1)  # bitwise equal on all ranks
    assert first[0] == first[1]  # and on both backends


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1 << 30])
def test_the_size_of_a_chunk_changes_nothing(ranks: Callable[[int], Ranks], chunk_bytes: int) -> None:
    first, *others = ranks(3).run(on_both, 100, torch.float32, chunk_bytes)
    assert others == [first] * 2


def shapes_and_refusals() -> None:
    world = dist.get_world_size()
    matrix = torch.ones(5, 7, requires_grad=True)
    ring_all_reduce(matrix)
    assert matrix.eq(world).all()
    for wrong in (
        torch.ones(4, 4).t()[1:],
        torch.ones(3, dtype=torch.int32),
        torch.ones(4).to(torch.float8_e5m2),
        torch.ones(3, device="meta"),
    ):
        with pytest.raises(ValueError, match="ring_all_reduce failed: got a tensor of"):
            ring_all_reduce(wrong)
    members = list(range(1, world))
    group = dist.new_group(members)
    if dist.get_rank() in members:
        assert ring_all_reduce(torch.ones(3), group).tolist() == [len(members)] * 3


def test_shapes_subgroups_and_refusals(ranks: Callable[[int], Ranks]) -> None:
    ranks(3).run(shapes_and_refusals)


@pytest.mark.parametrize("backend", ["shm", "gloo"])
def test_a_ranks_death_is_an_error_within_the_timeout(scripts: Scripts, backend: str) -> None:
    scripts.start(
        f"""
        start(30, {backend!r})
        from anyaccel.distributed import RingError, ring_all_reduce
        x = torch.ones(3_000_000)
        ring_all_reduce(x)
        say("ready")
        if rank == 1:
            time.sleep(60)
        try:
            ring_all_reduce(x)
        except RingError as error:
            say(time.time(), error)
        os._exit(0)  # gloo's own end may wait for the dead rank
        """,
        3,
    )
    scripts.wait_for("ready")
    time.sleep(0.3)
    scripts.signal(1, signal.SIGKILL)
    killed = time.time()
    for output in scripts.outputs(0, 2):
        moment, _, text = output.splitlines()[1].partition(" ")
        assert float(moment) - killed < 60  # the group's timeout is 30; a busy machine adds to it
        assert "ring_all_reduce failed: got an error from a neighbour of rank" in text
