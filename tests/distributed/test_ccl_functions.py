"""deepspeed's module ``deepspeed_ccl_comm`` without oneCCL, called as deepspeed's ``CCLBackend`` calls it."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist

from anyaccel.distributed import shm
from anyaccel.op_builder.deepspeed.ccl_comm import CCLCommError, CCLCommModule

from .test_shm_collectives import close, data, reduced

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ranks import Ranks, Scripts

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.bool,
)  # fmt: skip
GROUPS = {2: ([1],), 4: ([0, 2], [1, 3], [0, 1, 3])}


class ReduceOp(Enum):
    """The same as ``deepspeed.comm.ReduceOp``."""

    SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, AVG, UNUSED = range(9)


def bytes_of(address: list[int]) -> torch.Tensor:
    return torch.tensor(address).to(torch.uint8)


def connected() -> CCLCommModule:
    module = CCLCommModule(shm.create_or_gloo, "127.0.0.1")
    connect(module)
    return module


def connect(module: CCLCommModule) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    kvs = bytes_of(module.get_kvs_addr(rank))
    dist.broadcast(kvs, 0)
    module.initialize(world, rank, kvs)


def connect_group(module: CCLCommModule, ranks: list[int]) -> None:
    rank, group = dist.get_rank(), dist.new_group(ranks)
    if rank in ranks:
        kvs = bytes_of(module.get_sub_kvs_addr(rank == ranks[0]))
        dist.broadcast(kvs, ranks[0], group)
        module.initialize_sub_comm(len(ranks), ranks.index(rank), kvs, ranks)


def every_function_is_right() -> int:
    rank, world, cases = dist.get_rank(), dist.get_world_size(), 0
    module = connected()
    assert (module.get_rank(), module.get_world_size(0)) == (rank, world)
    for ranks in GROUPS[world]:
        connect_group(module, ranks)
    for ranks in (list(range(world)), *(group for group in GROUPS[world] if rank in group)):
        for dtype in DTYPES:
            values = [data(dtype, 1500, one) for one in ranks]
            mine = values[ranks.index(rank)]
            for op in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, dist.ReduceOp.SUM):
                for function, more in ((module.all_reduce, ()), (module.all_reduce_caching, ("name",))):
                    got = mine.clone()
                    assert function(got, op, *more, ranks, False) is None  # type: ignore[operator]
                    close(got, reduced(op.name, values, dtype))
                    cases += 1
            for source in range(len(ranks)):
                got = mine.clone()
                module.broadcast(got, source, ranks, True)
                assert torch.equal(got, values[source])
            if len(ranks) == world:
                got = mine.clone()
                module.inference_all_reduce(got, ReduceOp.SUM)
                close(got, reduced("SUM", values, dtype))
        module.barrier(ranks, False)
    return cases


@pytest.mark.parametrize("world", [2, 4])
def test_every_function_does_what_the_arithmetic_says(ranks: Callable[[int], Ranks], world: int) -> None:
    each = len(DTYPES) * 5 * 2
    groups = [1 + sum(rank in group for group in GROUPS[world]) for rank in range(world)]
    assert ranks(world).run(every_function_is_right) == [each * count for count in groups]


@pytest.mark.parametrize(("given", "taken"), [(5, 30), (7, 7), (60, 60)])
def test_operations_have_the_timeout_of_the_default_group_or_torchs_default(
    given: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = dist.HashStore()
    store.set_timeout(timedelta(minutes=given))
    monkeypatch.setattr(CCLCommModule, "_store_at", lambda *_: store)
    found: list[timedelta] = []
    module = CCLCommModule(lambda *arguments: found.append(arguments[3]), "127.0.0.1")
    module.get_kvs_addr(0)
    module.initialize(1, 0, torch.empty(0))
    assert found == [timedelta(minutes=taken)]


def differing_tensors_are_refused() -> str:
    module = connected()
    mine = torch.ones(3 + dist.get_rank())
    with pytest.raises(RuntimeError) as raised:
        module.all_reduce(mine, ReduceOp.SUM, [0, 1], False)
    assert mine.eq(1).all()
    mine = torch.ones(4)[::2]
    module.all_reduce(mine, ReduceOp.SUM, [], False)
    assert mine.tolist() == [2, 2]
    return str(raised.value)


def test_tensors_that_differ_between_ranks_are_refused_and_the_group_stays(ranks: Callable[[int], Ranks]) -> None:
    for said in ranks(2).run(differing_tensors_are_refused):
        assert "3" in said
        assert "4" in said


def a_new_address_makes_new_connections() -> list[bool]:
    module = connected()
    first = module._groups[()]
    module.initialize(2, dist.get_rank(), torch.zeros(256, dtype=torch.uint8))
    same = module._groups[()] is first
    connect(module)
    module.barrier([], False)
    return [same, module._groups[()] is first]


def test_a_second_call_of_initialize_needs_a_new_address_to_change_anything(ranks: Callable[[int], Ranks]) -> None:
    assert ranks(2).run(a_new_address_makes_new_connections) == [[True, False]] * 2


def misused(name: str) -> Any:
    """Return a call that cannot work, of a module that is connected if its name says so."""
    ones, none = torch.ones(2), torch.zeros(256, dtype=torch.uint8)
    module = CCLCommModule(lambda *_: object(), "127.0.0.1")
    if name.startswith("later"):
        kvs = bytes_of(module.get_kvs_addr(0))
        module.initialize(2, 0, kvs)
    calls: dict[str, Callable[[], Any]] = {
        "reduce first": lambda: module.all_reduce(ones, ReduceOp.SUM, [0, 1], False),
        "broadcast first": lambda: module.broadcast(ones, 0, [0, 1], False),
        "barrier first": lambda: module.barrier([0, 1], False),
        "group first": lambda: module.initialize_sub_comm(1, 0, none, [0]),
        "no address": lambda: module.initialize(2, 1, none),
        "floats": lambda: module.initialize(2, 1, none.float()),
        "no own address": lambda: module.initialize(2, 0, none),
        "no such rank": lambda: module.initialize(2, 2, none),
        "other text": lambda: module.initialize(2, 1, bytes_of(list(b"oneCCL 1 2 3"))),
        "later group": lambda: module.all_reduce(ones, ReduceOp.SUM, [1, 0], False),
        "later none": lambda: module.barrier(None, False),  # type: ignore[arg-type]
        "later op": lambda: module.all_reduce(ones, ReduceOp.UNUSED, [0, 1], False),
        "later text": lambda: module.all_reduce(ones, "SUM", [0, 1], False),
        "later maximum": lambda: module.inference_all_reduce(ones, ReduceOp.MAX),
        "later list": lambda: module.all_reduce([1.0], ReduceOp.SUM, [0, 1], False),  # type: ignore[arg-type]
        "later other rank": lambda: module.initialize_sub_comm(1, 0, none, [1]),
        "later size": lambda: module.initialize_sub_comm(2, 0, none, [0]),
        "later no own address": lambda: module.initialize_sub_comm(1, 0, none, [0]),
    }
    return calls[name]


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("reduce first", CCLCommError, "call initialize first"),
        ("broadcast first", CCLCommError, "call initialize first"),
        ("barrier first", CCLCommError, "call initialize first"),
        ("group first", CCLCommError, "call initialize first"),
        ("no address", CCLCommError, "got no address in kvs_data"),
        ("floats", CCLCommError, "got no address in kvs_data"),
        ("no own address", CCLCommError, "Fix: call get_kvs_addr there"),
        ("no such rank", CCLCommError, "got rank 2 of 2; expected 0 to 1"),
        ("other text", CCLCommError, "got no address in kvs_data"),
        ("later group", CCLCommError, r"got group \[1, 0\]; expected one of \[\[0, 1\]\]"),
        ("later none", TypeError, "got group None; expected a list"),
        ("later op", CCLCommError, "got op=<ReduceOp.UNUSED: 8>; expected a member of"),
        ("later text", CCLCommError, "got op='SUM'"),
        ("later maximum", CCLCommError, "ReduceOp: SUM. Fix"),
        ("later list", TypeError, "got list; expected a tensor"),
        ("later other rank", CCLCommError, r"ranks \[1\] on rank 0"),
        ("later size", CCLCommError, "got size 2, number 0"),
        ("later no own address", CCLCommError, "Fix: call get_sub_kvs_addr there"),
    ],
)
def test_a_call_that_cannot_work_says_why(name: str, kind: type[Exception], words: str) -> None:
    call = misused(name)
    with pytest.raises(kind, match=words):
        call()


APART = """
from pathlib import Path
from anyaccel.distributed import shm
from anyaccel.op_builder import OpLoadError
from anyaccel.op_builder.deepspeed.ccl_comm import CCLCommModule
from enum import Enum

if rank in no_shm:
    def _module():
        raise OpLoadError("no compiler")
    shm._module = _module
module = CCLCommModule(shm.create_or_gloo, "127.0.0.1")
assert not dist.is_initialized()

def share(address, name):
    there = Path(store + name)
    if any(address):
        there.with_suffix(".new").write_bytes(bytes(address))
        there.with_suffix(".new").rename(there)
    while not there.exists():
        time.sleep(0.01)
    return torch.tensor(list(there.read_bytes())).to(torch.uint8)

module.initialize(world, rank, share(module.get_kvs_addr(rank), "world"))
if rank > 0:
    kvs = share(module.get_sub_kvs_addr(rank == 1), "group")
    module.initialize_sub_comm(2, rank - 1, kvs, [1, 2])
Sum = Enum("ReduceOp", {"SUM": 0}).SUM
total, part = torch.full((5,), float(rank)), torch.full((5,), float(rank))
module.all_reduce(total, Sum, [0, 1, 2], False)
if rank > 0:
    module.all_reduce(part, Sum, [1, 2], False)
assert total.tolist() == [3.0] * 5 and part.tolist() == [3.0 * (rank > 0)] * 5
module.barrier([], False)
say(module._groups[()].name(), dist.is_initialized())
"""


@pytest.mark.parametrize(("without", "backend"), [((), "shm"), ((1,), "gloo")])
def test_ranks_meet_without_a_group_of_torchs_and_use_gloo_if_one_cannot_load_shm(
    scripts: Scripts, without: tuple[int, ...], backend: str
) -> None:
    scripts.start(f"no_shm = {without}\n" + APART, 3)
    assert scripts.outputs() == [f"{backend} False\n"] * 3
