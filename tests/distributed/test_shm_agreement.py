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


@pytest.mark.parametrize("hosts", ["aaa", "aab", "abb"])
def test_the_others_are_told_of_a_refusal_while_that_rank_waits_for_a_message(scripts: Scripts, hosts: str) -> None:
    """Rank 0's operation is rejected, and its next one has the same dtype and size as the one that the others wait in."""
    scripts.start(
        f"""
os.environ["ANYACCEL_SHM_HOST"] = "{hosts}"[rank]
start(20)
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
calls = {{
    "waited for": lambda x: dist.all_reduce(x),
    "in the background": lambda x: dist.all_reduce(x, async_op=True).wait(),
    "coalesced": lambda x: dist.all_reduce_coalesced([x, x.clone()]),
    "sparse": lambda x: dist.all_reduce(x.to_sparse()),
}}
for name, refused in {REFUSED!r}.items():
    for way, call in calls.items():
        if rank == 0:
            own = error_of(lambda: eval(refused))
            assert "shm" in own and "failed" in own, own
            dist.recv(torch.zeros(1), 1)
        else:
            before = torch.full((2,), 7.0)
            said = error_of(lambda: call(before))
            assert "got a refusal by rank 0" in said, said
            assert before.tolist() == [7.0, 7.0]
        if rank == 1:
            dist.send(torch.ones(1), 0)
    everywhere = [None] * world
    dist.all_gather_object(everywhere, own if rank == 0 else said)
    assert everywhere[0].split("Exception raised")[0].strip() in everywhere[1], everywhere
    say(name)
""",
        3,
    )
    assert scripts.outputs() == ["".join(f"{name}\n" for name in REFUSED)] * 3


@pytest.mark.parametrize("hosts", ["aaa", "abb"])
def test_refusals_in_a_row_on_all_ranks_and_before_the_end(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        f"""
        os.environ["ANYACCEL_SHM_HOST"] = "{hosts}"[rank]
        start(20)
        refuse = lambda: error_of(lambda: dist.all_reduce(torch.zeros(1).expand(4)))
        works = [dist.all_reduce(torch.ones(200_000), async_op=True) for _ in range(3)]
        for _ in range(3):  # behind operations in flight
            said = refuse() if rank == 2 else error_of(dist.barrier)
            assert "elements share memory" in said, said
        if rank == 2:
            dist.recv(torch.zeros(1), 1)
        elif rank == 1:
            dist.send(torch.ones(1), 2)
        for work in works:
            work.wait()
        for _ in range(3):
            said = refuse()
            assert "elements share memory" in said and "refusal" not in said, said
        x = torch.ones(2)
        dist.all_reduce(x)
        say(x.tolist())
        if rank == 2:
            refuse()
        else:
            say("elements share memory" in error_of(lambda: dist.all_reduce(x)))
        dist.barrier()
        if rank == 2:
            refuse()
            dist.destroy_process_group()
        else:
            assert error_of(lambda: dist.all_reduce(x)) != "no error"
        """,
        3,
    )
    assert scripts.outputs() == ["[3.0, 3.0]\nTrue\n"] * 2 + ["[3.0, 3.0]\n"]


def test_a_refusal_between_hosts_lets_a_monitored_barrier_pass(scripts: Scripts) -> None:
    """The barrier is gloo's, which compares nothing: the next collective says what was refused."""
    scripts.start(
        """
        os.environ["ANYACCEL_SHM_HOST"] = "abb"[rank]
        start(20)
        x = torch.ones(2)
        if rank == 1:
            error_of(lambda: dist.all_reduce(torch.zeros(1).expand(4)))
        dist.monitored_barrier()
        if rank != 1:
            assert "refusal by rank 1" in error_of(lambda: dist.all_reduce(x))
        dist.all_reduce(x)
        say(x.tolist())
        """,
        3,
    )
    assert scripts.outputs() == ["[3.0, 3.0]\n"] * 3


SIDES = {  # of a reduction, a gathering and a scattering: what the error says of each rank
    "aa": (("of 5 float32", "of 6 float32"), ("5 float32", "4"), ("5", "4")),
    "ab": (("of 5 Float", "of 6 Float"), ("of 10 Float", "of 8 Float"), ("of 10 Float", "of 8 Float")),
}


@pytest.mark.parametrize("hosts", SIDES)
def test_nothing_of_a_coalesced_operation_is_written_where_a_part_differs(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        f"""
        os.environ["ANYACCEL_SHM_HOST"] = {hosts!r}[rank]
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
        for line, both in zip((reduced, gathered, scattered), SIDES[hosts], strict=True):
            text, _ = line.split(" | ")
            assert "Nothing was written, and the group can continue" in text
            assert all(side in text for side in both), text
        assert reduced.endswith(f"[[{rank}.0], [{rank}.0], [{rank}.0]]")
        assert gathered.endswith("[[-1.0], [-1.0]]")
        assert scattered.endswith("[[-1.0], [-1.0]]")
        assert last == "[[3.0], [3.0]]"


@pytest.mark.parametrize("hosts", SIDES)
def test_coalesced_operations_with_other_numbers_of_parts_are_told_apart(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        f"""
        os.environ["ANYACCEL_SHM_HOST"] = {hosts!r}[rank]
        start(20)
        group = dist.group.WORLD
        tensors = [torch.full((3,), float(rank)) for _ in range(2 + rank)]
        say(error_of(lambda: dist.all_reduce_coalesced(tensors)))
        alone = torch.full((3,), float(rank))
        say(error_of(lambda: dist.all_reduce_coalesced([alone]) if rank else dist.all_reduce(alone)))
        shares = [torch.full((3,), -1.0) for _ in range(2 - rank)]
        call = lambda: group.reduce_scatter_tensor_coalesced(shares, [torch.ones(6) for _ in shares]).wait()
        say(error_of(call))
        say([one.unique().tolist() for one in (*tensors, alone, *shares)])
        """,
        2,
    )
    for rank, output in enumerate(scripts.outputs()):
        numbers, alone, scattered, kept = output.splitlines()
        for text in (numbers, alone, scattered):
            assert "Nothing was written, and the group can continue" in text
            assert "barrier" not in text
        assert "one of 2" in numbers
        assert hosts == "aa" or "one of 3" in numbers
        assert "one of 1" in alone
        assert "one of 2" in scattered
        assert kept == str([[float(rank)]] * (3 + rank) + [[-1.0]] * (2 - rank))


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


@pytest.mark.parametrize("hosts", ["aaa", "aab"])
def test_sparse_tensors_meet_none_of_another_shape_and_no_dense_one(scripts: Scripts, hosts: str) -> None:
    """What is sent first of a sparse matrix are four numbers: as many as the dense tensor has."""
    scripts.start(
        f"""
        os.environ["ANYACCEL_SHM_HOST"] = {hosts!r}[rank]
        start(20)
        for odd in range(world):
            for other in (torch.ones(4), torch.ones(2, 3).to_sparse()):
                mine = other.clone() if rank == odd else torch.eye(2).to_sparse()
                before = mine.to_dense().clone()
                said = error_of(lambda: dist.all_reduce(mine))
                assert said.startswith("shm all_") and "expected the same" in said, said
                assert mine.to_dense().equal(before)
                x = torch.eye(2).to_sparse()
                dist.all_reduce(x)
                assert x.to_dense().equal(torch.eye(2) * world)
        say("right")
        """,
        3,
    )
    assert scripts.outputs() == ["right\n"] * 3


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
