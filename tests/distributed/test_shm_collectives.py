"""Every collective of shm against a few lines of arithmetic."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist

from anyaccel.distributed import monitored_barrier

from .ranks import gloo
from .soak import soak

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ranks import Ranks

WORLDS = (1, 2, 3)
SIZES = (0, 1, 7, 4096, 4097, 1_000_003)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
INTEGERS = (
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip
COMPLEX = (torch.complex64, torch.complex128)
MOVED_ONLY = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.complex32)
R = dist.ReduceOp
OPS = {
    "SUM": R.SUM, "AVG": R.AVG, "PRODUCT": R.PRODUCT, "MIN": R.MIN, "MAX": R.MAX, "BAND": R.BAND, "BOR": R.BOR,
    "BXOR": R.BXOR,
}  # fmt: skip


def data(dtype: torch.dtype, size: int, rank: int, seed: int = 0) -> torch.Tensor:
    """Return a rank's values: small, so that every dtype can hold their sums and products, except that the product of
    four ranks in float8_e4m3fn may be too large.
    """
    generator = torch.Generator().manual_seed(seed * 1000 + rank)
    values = torch.randint(1, 6, (size,), generator=generator)
    if dtype == torch.bool:
        return values > 3
    return values.to(torch.float32).to(dtype)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return a dtype with every operation."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor.to(torch.int64)


def reduced(op: str, values: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Return the reduction, one rank after another, in the widest dtype; a float8_e4m3fn too large is its largest."""
    total = wide(values[0]).clone()
    for value in values[1:]:
        other = wide(value)
        total = {
            "SUM": torch.add, "AVG": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
            "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor,
        }[op](total, other)  # fmt: skip
    if op == "AVG":
        total = total / len(values) if not dtype.is_floating_point and total.is_complex() else total
        total = total / len(values) if dtype.is_floating_point else total
        total = (
            total if dtype.is_floating_point or total.is_complex() else total.div(len(values), rounding_mode="trunc")
        )
    if dtype == torch.bool:
        return total > 0 if op != "BXOR" else total.bool()
    narrow = total.to(torch.float32) if dtype.is_floating_point and dtype.itemsize < 4 else total
    if dtype == torch.float8_e4m3fn:  # of which torch 2.10's conversion makes NaN
        narrow = narrow.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max)
    return narrow.to(dtype)


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    if got.dtype.itemsize == 1 and got.dtype.is_floating_point:
        got, expected = got.float(), expected.float()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=0, equal_nan=True)


def supports(op: str, dtype: torch.dtype) -> bool:
    if op in ("BAND", "BOR", "BXOR"):
        return not (dtype.is_floating_point or dtype.is_complex)
    if op in ("MIN", "MAX"):
        return not dtype.is_complex
    return not (op == "AVG" and dtype == torch.bool)


def in_place(tensor: torch.Tensor, op: Any) -> None:
    """Reduce without ``dist.all_reduce``, which rejects some operations on complex numbers for every backend."""
    options = dist.AllreduceOptions()
    options.reduceOp = op
    dist.group.WORLD._get_backend(torch.device("cpu")).allreduce([tensor], options).wait()


def everything_is_reduced(dtype: torch.dtype) -> int:
    rank, world = dist.get_rank(), dist.get_world_size()
    cases = 0
    for name, op in OPS.items():
        for size in (3, 1500, 50_000):
            values = [data(dtype, size, one) for one in range(world)]
            mine = values[rank].clone()
            if not supports(name, dtype):
                with pytest.raises(RuntimeError, match="all_reduce failed: got"):
                    in_place(mine, op)
                continue
            in_place(mine, op)
            close(mine, reduced(name, values, dtype))
            cases += 1
    return cases


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, *COMPLEX, torch.bool], ids=str)
def test_all_reduce_of_every_dtype_with_every_operation(ranks: Callable[[int], Ranks], dtype: torch.dtype) -> None:
    cases = ranks(3).run(everything_is_reduced, dtype)
    assert cases == [3 * sum(supports(op, dtype) for op in OPS)] * 3


def infinities_are_reduced() -> None:
    """What is too large for e5m2 becomes infinite, as where torch converts it."""
    world = dist.get_world_size()
    largest = torch.finfo(torch.float8_e5m2).max
    for size in (4, 10_000):
        given = torch.tensor([float("inf"), -float("inf"), float("nan"), largest]).repeat(size).to(torch.float8_e5m2)
        for name, op in OPS.items():
            if supports(name, given.dtype):
                mine = given.clone()
                in_place(mine, op)
                close(mine, reduced(name, [given] * world, given.dtype))


def test_a_reduction_of_float8_keeps_infinities(ranks: Callable[[int], Ranks]) -> None:
    ranks(3).run(infinities_are_reduced)


def everything_is_moved(dtype: torch.dtype) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for size in (1, 5000, 100_001):
        kind = torch.bool if dtype == torch.bool else torch.uint8
        of = [data(kind, size * dtype.itemsize, one).view(dtype) for one in range(world)]
        mine = of[rank]

        def same(got: torch.Tensor, expected: torch.Tensor) -> None:
            assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8))

        outputs = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(outputs, mine)
        for got, expected in zip(outputs, of, strict=True):
            same(got, expected)
        sent = mine.clone()
        dist.broadcast(sent, 1)
        same(sent, of[1])
        request = dist.isend(mine, (rank + 1) % world)
        got = torch.empty_like(mine)
        dist.recv(got, (rank - 1) % world)
        request.wait()
        same(got, of[rank - 1])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, *COMPLEX, *MOVED_ONLY, torch.bool], ids=str)
def test_every_dtype_is_moved_bit_by_bit(ranks: Callable[[int], Ranks], dtype: torch.dtype) -> None:
    ranks(2).run(everything_is_moved, dtype)


def all_collectives(size: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    of = [data(torch.float32, size, one, size) for one in range(world)]
    wholes = [data(torch.float32, size * world, one, size) for one in range(world)]
    total = reduced("SUM", of, torch.float32)
    parts = reduced("SUM", wholes, torch.float32).view(world, size)
    for root in range(world):
        mine = of[rank].clone()
        dist.broadcast(mine, root)
        close(mine, of[root])
        mine = of[rank].clone()
        dist.reduce(mine, root)
        close(mine, total if rank == root else of[rank])
        outputs = [torch.full((size,), torch.nan) for _ in range(world)] if rank == root else None
        dist.gather(of[rank], outputs, root)
        if outputs:
            close(torch.stack(outputs), torch.stack(of))
        output = torch.full((size,), torch.nan)
        dist.scatter(output, list(wholes[root].view(world, size)) if rank == root else None, root)
        close(output, wholes[root].view(world, size)[rank])
    outputs = [torch.full((size,), torch.nan) for _ in range(world)]
    dist.all_gather(outputs, of[rank])
    close(torch.stack(outputs), torch.stack(of))
    flat = torch.full((size * world,), torch.nan)
    dist.all_gather_into_tensor(flat, of[rank])
    close(flat, torch.cat(of))
    output = torch.full((size,), torch.nan)
    dist.reduce_scatter_tensor(output, wholes[rank])
    close(output, parts[rank])
    output = torch.full((size,), torch.nan)
    dist.reduce_scatter(output, list(wholes[rank].view(world, size)), R.MAX)
    close(output, reduced("MAX", wholes, torch.float32).view(world, size)[rank])
    output = torch.full((size * world,), torch.nan)
    dist.all_to_all_single(output, wholes[rank])
    close(output, torch.cat([whole.view(world, size)[rank] for whole in wholes]))
    outputs = [torch.full((size,), torch.nan) for _ in range(world)]
    dist.all_to_all(outputs, list(wholes[rank].view(world, size)))
    close(torch.stack(outputs), torch.stack([whole.view(world, size)[rank] for whole in wholes]))
    dist.barrier()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("size", SIZES)
def test_every_collective(ranks: Callable[[int], Ranks], world: int, size: int) -> None:
    ranks(world).run(all_collectives, size)


def uneven() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for unit in (1, 3000, 200_000):
        sizes = [unit * (one + 1) for one in range(world)]
        outputs = [torch.full((size,), torch.nan) for size in sizes]
        dist.all_gather(outputs, torch.full((sizes[rank],), float(rank)))
        for one, output in enumerate(outputs):
            assert output.eq(one).all()
        output = torch.full((sizes[rank],), torch.nan)
        dist.reduce_scatter(output, [torch.full((size,), float(rank + 1)) for size in sizes])
        assert output.eq(sum(range(1, world + 1))).all()
        splits = [unit * ((rank + one) % world) for one in range(world)]
        got = torch.full((sum(splits), 2), torch.nan)
        dist.all_to_all_single(got, torch.full((sum(splits), 2), float(rank)), splits, splits)
        assert [part.eq(one).all() for one, part in enumerate(got.split(splits))] == [True] * world


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_may_have_uneven_parts(ranks: Callable[[int], Ranks], world: int) -> None:
    ranks(world).run(uneven)


def non_contiguous() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    base = torch.zeros(300, 400)
    part = base[::3, 1::2]
    part.fill_(rank + 1.0)
    dist.all_reduce(part)
    assert part.eq(sum(range(1, world + 1))).all()
    assert base.sum() == part.sum()  # only the part was written
    transposed = torch.full((5, 7), float(rank)).t()
    outputs = [torch.zeros(5, 7).t() for _ in range(world)]
    dist.all_gather(outputs, transposed)
    assert [output.unique().tolist() for output in outputs] == [[float(one)] for one in range(world)]
    conjugate = torch.full((3,), 1j).conj()
    in_place(conjugate, R.SUM)
    assert torch.equal(conjugate.resolve_conj(), torch.full((3,), -1j * world))
    grid = torch.arange(12.0).view(3, 4).t() * (rank + 1)
    dist.broadcast(grid, 1)
    assert torch.equal(grid, torch.arange(12.0).view(3, 4).t() * 2)
    with pytest.raises(RuntimeError, match="whose elements share memory"):
        dist.all_reduce(torch.zeros(1).expand(4))
    with pytest.raises(RuntimeError, match="whose elements share memory"):
        dist.all_reduce(torch.zeros(4).as_strided((2, 3), (1, 1)))
    leaf = torch.ones(4, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(leaf[::2], async_op=True).wait()
    assert leaf.tolist() == [float(world), 1.0] * 2


def part_of_its_result() -> None:
    """FSDP gathers in place: each rank's input is its part of the output."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for length in (1, 5000, 300_001):
        whole = torch.full((world * length,), -1.0)
        own = whole.view(world, length)[rank].fill_(rank)
        dist.all_gather_into_tensor(whole, own)
        assert torch.equal(whole, torch.arange(float(world)).repeat_interleave(length))


def test_a_part_of_the_result_is_gathered_in_place(ranks: Callable[[int], Ranks]) -> None:
    ranks(2).run(part_of_its_result)


def test_non_contiguous_tensors_are_right_or_refused(ranks: Callable[[int], Ranks]) -> None:
    ranks(2).run(non_contiguous)


def bits_on_every_rank(kind: torch.dtype) -> list[int]:
    generator = torch.Generator().manual_seed(dist.get_rank())
    sums = []
    for size in (5, 3000, 700_001):
        values = torch.randn(size, generator=generator).mul(1e3).to(kind)
        for _ in range(3):
            mine = values.clone()
            dist.all_reduce(mine, async_op=True).wait()
            sums.append(int(mine.view(torch.uint8).long().mul(torch.arange(1, mine.nbytes + 1)).sum()))
    return sums


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
def test_results_are_the_same_bits_on_all_ranks_and_every_time(
    ranks: Callable[[int], Ranks], kind: torch.dtype
) -> None:
    first, *others = ranks(3).run(bits_on_every_rank, kind)
    assert others == [first] * 2
    assert [len(set(first[start : start + 3])) for start in (0, 3, 6)] == [1, 1, 1]


def sixteen_bits_are_summed_in_float() -> None:
    values = torch.tensor([1.0, 2.0**-8, 2.0**-8])[dist.get_rank()].to(torch.bfloat16).repeat(1000)
    dist.all_reduce(values)
    exact = torch.tensor([1 + 2.0**-7]).to(torch.bfloat16)  # in bfloat16 each addition would round back to 1
    assert values.eq(exact).all()


def test_bfloat16_accumulates_in_float32(ranks: Callable[[int], Ranks]) -> None:
    ranks(3).run(sixteen_bits_are_summed_in_float)


def scaled_sums() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for factor in (0.5, torch.tensor([0.25])):
        mine = torch.full((20_000,), float(rank + 1))
        dist.all_reduce(mine, dist._make_nccl_premul_sum(factor))
        assert mine.eq(float(factor) * sum(range(1, world + 1))).all()
    mine = torch.full((4,), float(rank + 1), dtype=torch.bfloat16)
    dist.all_reduce(mine, dist._make_nccl_premul_sum(float(rank)))  # each rank has its own factor
    assert mine.eq(sum(one * (one + 1) for one in range(world))).all()


def test_premul_sum_scales_each_ranks_values(ranks: Callable[[int], Ranks]) -> None:
    ranks(3).run(scaled_sums)


def extremes() -> None:
    values = torch.tensor([[1.0, torch.nan, 2.0], [torch.nan, 1.0, torch.inf]])[dist.get_rank()]
    for op in (R.MIN, R.MAX):
        mine = values.clone()
        dist.all_reduce(mine, op)
        assert mine.isnan().tolist() == [True, True, False]
    wrapped = torch.full((3,), 200, dtype=torch.uint8)
    dist.all_reduce(wrapped)
    assert wrapped.tolist() == [144] * 3
    any_of = torch.tensor([2, 0], dtype=torch.uint8).view(torch.bool) if dist.get_rank() == 0 else torch.zeros(2).bool()
    dist.all_reduce(any_of)
    assert any_of.view(torch.uint8).tolist() == [1, 0]


def test_nan_overflow_and_bool(ranks: Callable[[int], Ranks]) -> None:
    ranks(2).run(extremes)


def coalesced() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    backend = dist.group.WORLD
    tensors = [torch.full((size,), float(rank + 1)) for size in (3, 0, 5000, 200_000)]
    dist.all_reduce_coalesced(tensors)
    assert all(tensor.eq(sum(range(1, world + 1))).all() for tensor in tensors)
    outputs = [torch.empty(world * 3), torch.empty(world * 100_000)]
    backend.allgather_into_tensor_coalesced(
        outputs, [torch.full((3,), 1.0 * rank), torch.full((100_000,), 2.0 * rank)]
    ).wait()
    for factor, output in enumerate(outputs, 1):
        assert [part.unique().item() for part in output.chunk(world)] == [float(factor * one) for one in range(world)]
    shares = [torch.empty(3), torch.empty(100_000)]
    backend.reduce_scatter_tensor_coalesced(shares, [torch.ones(3 * world), torch.ones(100_000 * world)]).wait()
    assert all(share.eq(world).all() for share in shares)
    lists = [[torch.empty(4), torch.empty(2)] for _ in range(world)]
    dist.all_gather_coalesced(lists, [torch.full((4,), 1.0 * rank), torch.full((2,), -1.0 * rank)])
    assert [[one[0].item() for one in pair] for pair in lists] == [[1.0 * one, -1.0 * one] for one in range(world)]
    with dist._coalescing_manager(async_ops=True) as together:
        many = [torch.ones(7) for _ in range(5)]
        for one in many:
            dist.all_reduce(one)
    together.wait()
    assert all(one.eq(world).all() for one in many)


def coalesced_mixtures() -> None:
    """Parts of several dtypes, sizes and layouts give what single operations give, whichever of them travel together."""
    rank, world = dist.get_rank(), dist.get_world_size()
    kinds = [
        (size, one) for size in (3, 0, 1, 70_000, 200_000, 5) for one in (torch.float32, torch.int16, torch.bfloat16)
    ]
    parts = [data(one, size * world, rank, seed=7) for size, one in [*kinds, *((4, torch.float32),) * 40]]
    parts.append(data(torch.float64, 6 * world, rank).view(2, -1).t())
    for op in (R.SUM, R.MAX):
        together, single = [each.clone() for each in parts], [each.clone() for each in parts]
        options = dist.AllreduceCoalescedOptions()
        options.reduceOp = op
        dist.group.WORLD._get_backend(torch.device("cpu")).allreduce_coalesced(together, options).wait()
        for each in single:
            dist.all_reduce(each, op)
        assert all(one.equal(other) for one, other in zip(together, single, strict=True))
    plain = [each.contiguous().view(-1) for each in parts]
    together = [torch.empty(each.numel() * world, dtype=each.dtype) for each in plain]
    dist.group.WORLD.allgather_into_tensor_coalesced(together, plain).wait()
    for each, result in zip(plain, together, strict=True):
        expected = torch.empty_like(result)
        dist.all_gather_into_tensor(expected, each)
        assert result.equal(expected)
    together = [torch.empty(each.numel() // world, dtype=each.dtype) for each in plain]
    dist.group.WORLD.reduce_scatter_tensor_coalesced(together, plain).wait()
    for each, result in zip(plain, together, strict=True):
        share = torch.empty_like(result)
        dist.reduce_scatter_tensor(share, each)
        assert result.equal(share)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [coalesced, coalesced_mixtures], ids=lambda case: case.__name__)
def test_coalesced_collectives(ranks: Callable[[int], Ranks], case: Callable[[], None]) -> None:
    ranks(2).run(case)


def sparse() -> None:
    rank = dist.get_rank()
    indices = torch.tensor([[rank, 5, 5], [0, 1, 1]])
    mine = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0]) + rank, (6, 2), check_invariants=True)
    peer = mine.clone()
    dist.all_reduce(mine)
    dist.all_reduce(peer, group=gloo())
    assert torch.equal(mine.to_dense(), peer.to_dense())
    rows = torch.sparse_coo_tensor([[rank * 2]], torch.ones(1, 1000), (8, 1000), check_invariants=True)
    dist.all_reduce(rows, async_op=True).wait()
    assert rows.to_dense().sum(1).tolist() == [
        1000.0 * (one % 2 == 0 and one // 2 < dist.get_world_size()) for one in range(8)
    ]


def test_sparse_all_reduce(ranks: Callable[[int], Ranks]) -> None:
    ranks(3).run(sparse)


def many_in_flight() -> None:
    world = dist.get_world_size()
    tensors = [torch.full((index * 500,), float(index)) for index in range(64)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    order = torch.randperm(64, generator=torch.Generator().manual_seed(dist.get_rank())).tolist()
    for index in order:
        works[index].wait()
        assert works[index].is_completed()
        assert works[index].is_success()
        assert tensors[index].eq(index * world).all()
        assert works[index].get_future().wait()[0] is not None
    assert works[0].result()[0].data_ptr() == tensors[0].data_ptr()
    seen = []
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    future.then(lambda done: seen.append(done.value()[0].tolist())).wait()
    assert seen == [[float(world)] * 3]
    inner: list[torch.Tensor] = []

    def another(done: torch.futures.Future) -> None:
        work.wait()
        inner.append(torch.ones(5))
        dist.all_reduce(inner[0])

    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.get_future().then(another).wait()
    assert inner[0].tolist() == [float(world)] * 5
    first, second = (dist.all_reduce(torch.ones(3), async_op=True) for _ in range(2))
    first.get_future().then(lambda done: second.wait()).wait()


def test_sixty_four_operations_in_flight_waited_in_any_order(ranks: Callable[[int], Ranks]) -> None:
    ranks(3).run(many_in_flight)


def same_tag() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    sizes = [1, 40_000, 3, 100_000, 20, 5] * 10
    sends, receives, got = [], [], []
    for index, size in enumerate(sizes):  # posted while others arrive: each receive takes the next message in order
        sends.append(dist.isend(torch.full((size,), float(index)), (rank + 1) % world))
        got.append(torch.empty(size))
        receives.append(dist.irecv(got[-1], (rank - 1) % world))
    for work in receives + sends:
        work.wait()
    assert [tensor.unique().tolist() for tensor in got] == [[float(index)] for index in range(len(sizes))]


@pytest.mark.parametrize("world", WORLDS[1:])
def test_messages_of_one_tag_keep_their_order(ranks: Callable[[int], Ranks], world: int) -> None:
    ranks(world).run(same_tag)


def blocked_callback() -> None:
    """Rank 0's callback waits for an operation that rank 1 issues only after a message that rank 0 is still sending."""
    groups = [dist.new_group(), dist.new_group()]
    big, ready = torch.ones(3_000_000), torch.ones(1)
    if dist.get_rank() == 0:
        done = dist.all_reduce(torch.ones(3), group=groups[0], async_op=True).get_future()
        after = done.then(lambda _: dist.all_reduce(torch.ones(3), group=groups[0]))  # on another thread, later
        sent = dist.isend(big, 1, group=groups[1])
        dist.send(ready, 1)
        after.wait()
        sent.wait()
    else:
        dist.recv(ready, 0)
        dist.all_reduce(torch.ones(3), group=groups[0])
        dist.recv(big, 0, group=groups[1])
        dist.all_reduce(torch.ones(3), group=groups[0])


def test_a_callback_that_blocks_holds_up_no_other_group(ranks: Callable[[int], Ranks]) -> None:
    ranks(2).run(blocked_callback)


def facts() -> list[Any]:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    before = backend._get_sequence_number_for_group()
    dist.barrier()
    backend.set_timeout(timedelta(seconds=50))
    monitored_barrier(timeout=timedelta(seconds=10))
    backend.set_timeout(timedelta(seconds=60))
    return [backend.name(), dist.get_backend(), backend._get_sequence_number_for_group() - before]


def test_the_backend_tells_its_name_options_and_sequence_number(ranks: Callable[[int], Ranks]) -> None:
    assert ranks(2).run(facts) == [["shm", "shm", 2]] * 2


@pytest.mark.parametrize("seed", [1])
def test_a_random_soak_equals_gloo(ranks: Callable[[int], Ranks], seed: int) -> None:
    """A short run; ``python -m tests.distributed.soak`` does the long one."""
    assert sum(ranks(4).run(soak, 500, seed)[0].values()) == 500
