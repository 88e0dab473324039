"""Tensors of one call that share memory: what a rank gives is read before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ranks import Ranks

HOSTS = ["aaa", "aab"]


def scattered_into_its_own_input(apart: int) -> None:
    """The output begins a number of elements behind this rank's own part of the input."""
    rank, world = dist.get_rank(), dist.get_world_size()
    count = 150_000
    values = torch.arange((world + 1) * count, dtype=torch.float32) % 1000
    x = values.clone()
    output = x[rank * count + apart : (rank + 1) * count + apart]
    dist.reduce_scatter_tensor(output, x[: world * count])
    assert output.equal(world * values[rank * count : (rank + 1) * count])


@pytest.mark.parametrize("apart", [0, 1000, 150_000])
@pytest.mark.parametrize("hosts", ["aaa", "aab"])
def test_an_output_may_overlap_what_is_scattered(ranks_on: Callable[[str], Ranks], hosts: str, apart: int) -> None:
    ranks_on(hosts).run(scattered_into_its_own_input, apart)


def exchanged_in_place(count: int) -> None:
    """Every rank has ``10 * rank + part`` for each other one."""
    rank, world = dist.get_rank(), dist.get_world_size()

    def given(extra: int = 0) -> torch.Tensor:
        values = (10.0 * rank + torch.arange(float(world))).repeat_interleave(count)
        return torch.cat([values, torch.zeros(extra)])

    expected = (10.0 * torch.arange(float(world)) + rank).repeat_interleave(count)
    x = given()
    dist.all_to_all_single(x, x)
    assert x.equal(expected)
    x = given(count // 4)
    dist.all_to_all_single(x[count // 4 :], x[: world * count])
    assert x[count // 4 :].equal(expected)
    parts = list(given().chunk(world))
    dist.all_to_all(parts, parts)
    assert torch.cat(parts).equal(expected)
    parts = list(given().chunk(world))
    turned = [*parts[1:], parts[0]]
    dist.all_to_all(turned, parts)
    assert torch.cat(turned).equal(expected)


@pytest.mark.parametrize("count", [4, 4000, 200_000])
@pytest.mark.parametrize("hosts", HOSTS)
def test_outputs_of_all_to_all_may_be_its_inputs(ranks_on: Callable[[str], Ranks], hosts: str, count: int) -> None:
    ranks_on(hosts).run(exchanged_in_place, count)


def scattered_into_one_of_the_inputs() -> None:
    rank = dist.get_rank()
    parts = list(torch.arange(3.0).repeat_interleave(400_000).chunk(3))
    output = parts[2] if rank == 1 else torch.empty_like(parts[0])
    dist.scatter(output, parts if rank == 1 else None, src=1)
    assert output.eq(rank).all()


@pytest.mark.parametrize("hosts", HOSTS)
def test_the_output_of_scatter_may_be_one_of_its_inputs(ranks_on: Callable[[str], Ranks], hosts: str) -> None:
    ranks_on(hosts).run(scattered_into_one_of_the_inputs)


def reduced_together(count: int) -> None:
    world = dist.get_world_size()
    x = torch.ones(3 * count)
    dist.all_reduce_coalesced([x, x.view(3, count), x[: 2 * count], x[count:]])
    assert x.eq(world).all()
    x = torch.ones(3 * count)
    dist.all_reduce_coalesced([x[: 2 * count], x[::3], x[count:]])
    assert x.eq(world).all()


@pytest.mark.parametrize("count", [2, 100_000])
@pytest.mark.parametrize("hosts", HOSTS)
def test_views_of_one_tensor_are_reduced_once(ranks_on: Callable[[str], Ranks], hosts: str, count: int) -> None:
    ranks_on(hosts).run(reduced_together, count)


def zeros_without_memory() -> None:
    """Forward-mode autograd makes such zeros, whose address is null."""
    world = dist.get_world_size()
    for count in (1, 3):
        nothing, output = torch._efficientzerotensor(count), torch.ones(count)
        dist.reduce_scatter(output, [nothing] * world)
        assert output.equal(torch.zeros(count))
        outputs = [torch.ones(count) for _ in range(world)]
        dist.all_gather(outputs, nothing)
        assert all(one.equal(torch.zeros(count)) for one in outputs)
        with pytest.raises(RuntimeError, match="an output without memory"):
            dist.all_gather([nothing] * world, output)


@pytest.mark.parametrize("hosts", ["aaa", "aab"])
def test_zeros_without_memory_can_be_given(ranks_on: Callable[[str], Ranks], hosts: str) -> None:
    ranks_on(hosts).run(zeros_without_memory)
