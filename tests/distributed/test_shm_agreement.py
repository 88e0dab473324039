"""Wrong arguments, on one rank or on all: they are rejected with an error, and the group stays usable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .ranks import Scripts

REFUSED = {
    "all_reduce": "dist.all_reduce(torch.zeros(1).expand(4))",
    "reduction": "dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)",
    "broadcast": "backend.broadcast([torch.ones(2)] * 2, dist.BroadcastOptions())",
    "all_gather": "dist.all_gather_into_tensor(torch.ones(5), torch.ones(2))",
    "coalesced": "dist.all_reduce_coalesced([torch.ones(2), torch.zeros(1).expand(4)])",
    "sparse tensor": "dist.all_reduce(torch.ones(2).to_sparse(), dist.ReduceOp.MAX)",
}


@pytest.mark.parametrize("hosts", ["same", "apart"])
def test_a_refusal_on_one_rank_does_not_pair_operations_that_do_not_belong_together(
    scripts: Scripts, hosts: str
) -> None:
    """Rank 0's operation is rejected, and its next one has the same dtype and size as the one that rank 1 waits in."""
    scripts.start(
        ("os.environ['ANYACCEL_SHM_HOST'] = str(rank)\n" if hosts == "apart" else "")
        + f"""
start(20)
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
for name, call in {REFUSED!r}.items():
    if rank == 0:
        said = error_of(lambda: eval(call))
        assert "shm" in said and "failed" in said, said
    else:
        before = torch.full((2,), 7.0)
        said = error_of(lambda: dist.all_reduce(before))
        assert "An earlier operation was refused there" in said and "rank 0" in said, said
        assert before.tolist() == [7.0, 7.0]
    after = torch.full((2,), rank + 1.0)
    dist.all_reduce(after)
    say(name, after.tolist())
""",
        2,
    )
    assert scripts.outputs() == ["".join(f"{name} [3.0, 3.0]\n" for name in REFUSED)] * 2


def test_nothing_of_a_coalesced_operation_is_written_where_a_part_differs(scripts: Scripts) -> None:
    scripts.start(
        """
        start(20)
        group = dist.group.WORLD
        tensors = [torch.full((size,), float(rank)) for size in (3, 5 + rank, 7)]
        say(error_of(lambda: dist.all_reduce_coalesced(tensors)), "|", [one.unique().tolist() for one in tensors])
        outputs = [torch.full((size * 2,), -1.0) for size in (3, 5)]
        inputs = [torch.full((3,), float(rank)), torch.full((5,), float(rank), dtype=torch.float32)]
        if rank: outputs[1], inputs[1] = torch.full((8,), -1.0), torch.full((4,), 1.0)
        call = lambda: group.allgather_into_tensor_coalesced(outputs, inputs).wait()
        say(error_of(call), "|", [one.unique().tolist() for one in outputs])
        shares = [torch.full((3,), -1.0), torch.full((5 - rank,), -1.0)]
        call = lambda: group.reduce_scatter_tensor_coalesced(shares, [torch.ones(6), torch.ones(10 - 2 * rank)]).wait()
        say(error_of(call), "|", [one.unique().tolist() for one in shares])
        tensors = [torch.full((size,), rank + 1.0) for size in (3, 200_000)]
        dist.all_reduce_coalesced(tensors)
        say([one.unique().tolist() for one in tensors])
        """,
        2,
    )
    for rank, output in enumerate(scripts.outputs()):
        reduced, gathered, scattered, last = output.splitlines()
        for line, both in (
            (reduced, ["of 5 float32", "of 6 float32"]),
            (gathered, ["5 float32", "4"]),
            (scattered, ["5", "4"]),
        ):
            text, _ = line.split(" | ")
            assert "Nothing was written, and the group can continue" in text
            assert all(side in text for side in both), text
        assert reduced.endswith(f"[[{rank}.0], [{rank}.0], [{rank}.0]]")
        assert gathered.endswith("[[-1.0], [-1.0]]")
        assert scattered.endswith("[[-1.0], [-1.0]]")
        assert last == "[[3.0], [3.0]]"


def test_sizes_that_differ_between_hosts_are_refused_on_every_rank(scripts: Scripts) -> None:
    scripts.start(
        """
        os.environ["ANYACCEL_SHM_HOST"] = "aab"[rank]
        start(20)
        longer = torch.ones(3 + (rank == 2))
        outputs = [torch.full((3,), -1.0) for _ in range(world)]
        taken = [torch.full((one,), -1.0) for one in (3, 3 + (rank == 1), 3)]
        for call in (
            lambda: dist.gather(longer, outputs if rank == 0 else None, 0),
            lambda: dist.scatter(longer, [torch.ones(3)] * world if rank == 1 else None, 1),
            lambda: dist.all_to_all(outputs, [longer[:3], longer, longer[:3]]),
            lambda: dist.all_gather(taken, torch.ones(taken[rank].numel())),
            lambda: dist.all_reduce(torch.ones(2) if rank else torch.ones(2).to_sparse()),
            lambda: dist.reduce(longer, 2),
        ):
            said = error_of(call)
            assert "shm" in said and "the group can continue" in said or "sparse" in said, said
        assert all(one.eq(-1).all() for one in outputs + taken)
        dist.all_to_all(outputs, [torch.full((3,), float(rank))] * world)
        say([one[0].item() for one in outputs])
        said = error_of(lambda: dist.send(longer, (rank + 1) % world, tag=2**31 - 1))
        assert "send failed: got tag 2147483647" in said, said
        """,
        3,
    )
    assert scripts.outputs() == ["[0.0, 1.0, 2.0]\n"] * 3


def test_a_coalesced_operation_may_have_uneven_parts(scripts: Scripts) -> None:
    scripts.start(
        """
        start(20)
        lists = [[torch.empty(4 + one), torch.empty(2)] for one in range(world)]
        dist.all_gather_coalesced(lists, [torch.full((4 + rank,), 1.0 * rank), torch.full((2,), -1.0 * rank)])
        say([[one.unique().tolist() for one in pair] for pair in lists])
        """,
        2,
    )
    assert scripts.outputs() == ["[[[0.0], [-0.0]], [[1.0], [-1.0]]]\n"] * 2


def test_a_timeout_that_is_not_positive_is_refused(scripts: Scripts) -> None:
    scripts.start(
        """
        say(error_of(lambda: start(0)))
        store += "2"
        start(20)
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        say(error_of(lambda: backend.set_timeout(timedelta(0))))
        options = dist.AllreduceOptions()
        options.timeout = timedelta(milliseconds=0)
        dist.barrier()
        seen = dist.distributed_c10d._get_default_store()
        if rank == 0:  # its error ends the group, and must not meet a rank that is still in the barrier
            seen.wait(["rank 1 has left the barrier"])
            say(error_of(lambda: backend.allreduce([torch.ones(2)], options).wait()))
        else:
            seen.set("rank 1 has left the barrier", "")
            time.sleep(1)
        """,
        2,
    )
    first, second = scripts.outputs()
    for output in (first, second):
        assert output.count("got a timeout of 0 ms; expected a positive one") == 2
    assert "Timed out waiting 0ms" in first


def test_a_timeout_may_be_longer_than_any_clock(scripts: Scripts) -> None:
    scripts.start(
        """
        start(86_400 * 365 * 1000)
        x = torch.ones(2)
        dist.all_reduce(x)
        dist.recv(x, 1) if rank == 0 else dist.send(x, 0)
        say(x.tolist())
        """,
        2,
    )
    assert scripts.outputs() == ["[2.0, 2.0]\n"] * 2
