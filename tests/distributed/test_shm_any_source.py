"""Receives from any source in a group between hosts, where a message comes by memory or by gloo."""

from __future__ import annotations

import random
import signal
import threading
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ranks import Ranks, Scripts


def everyone_sends_to_each(kinds: tuple[torch.dtype, ...], size: int) -> None:
    """Each rank in turn receives from all the others, in whatever order they come; then all do so at once."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for kind in kinds:
        for root in range(world):
            if rank != root:
                dist.send(torch.full((size,), rank + 1).to(kind), root)
            else:
                seen = []
                for _ in range(world - 1):
                    got = torch.zeros(2 * size, dtype=kind)[::2]  # with gaps
                    source = dist.recv(got)
                    assert (got == source + 1).all(), (source, got)
                    seen.append(source)
                assert sorted(seen) == [one for one in range(world) if one != root]
            dist.barrier()  # or the next message would be from any, too
    places = [torch.zeros(size) for _ in range(world - 1)]
    receives = [dist.irecv(place) for place in places]
    sends = [dist.isend(torch.full((size,), float(rank + 1)), to) for to in range(world) if to != rank]
    for work in receives + sends:
        work.wait()
    found = sorted(
        (work._source_rank(), *place.unique().tolist()) for work, place in zip(receives, places, strict=True)
    )
    assert found == [(one, one + 1.0) for one in range(world) if one != rank]


@pytest.mark.parametrize(
    ("hosts", "size"),
    [
        ("aab", 1),
        ("aab", 100_000),
        ("abc", 1),
        pytest.param("abc", 100_000, marks=pytest.mark.slow),
        pytest.param("aabb", 1, marks=pytest.mark.slow),
        pytest.param("aabb", 100_000, marks=pytest.mark.slow),
    ],
)
def test_it_receives_from_each_rank(ranks_on: Callable[[str], Ranks], hosts: str, size: int) -> None:
    ranks_on(hosts).run(everyone_sends_to_each, (torch.float32, torch.int16), size)


def random_messages(seed: int, count: int) -> None:
    """Messages of two tags, received by name or from any rank, as the seed has it for all.

    Of each tag and sender, messages come in the order in which they were sent.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    drawn = random.Random(seed)  # noqa: S311
    next_number = [[0] * world for _ in range(world)]
    expected = [[0] * world for _ in range(world)]
    for _ in range(count):
        receiver, tag, is_named = drawn.randrange(world), drawn.randrange(2), drawn.random() < 0.4
        senders = [drawn.choice([one for one in range(world) if one != receiver]) for _ in range(drawn.randrange(1, 6))]
        if rank == receiver:
            named = senders if is_named else [None] * len(senders)
            places = [torch.zeros(3) for _ in senders]
            receives = [dist.irecv(place, source, tag=tag) for place, source in zip(places, named, strict=True)]
            seen = []
            for receive in receives:
                receive.wait()
            by_source: dict[int, list[int]] = {}
            for source, receive, place in zip(named, receives, places, strict=True):
                came = receive._source_rank() if source is None else source
                seen.append(came)
                by_source.setdefault(came, []).append(int(place[0]))
            assert sorted(seen) == sorted(senders), (seen, senders, is_named)
            for source, numbers in by_source.items():
                start = expected[source][receiver]
                assert sorted(numbers) == list(range(start, start + len(numbers))), (source, numbers, start)
                expected[source][receiver] += len(numbers)
        else:
            for sender in senders:
                if sender == rank:
                    dist.send(torch.full((3,), float(next_number[rank][receiver])), receiver, tag=tag)
                    next_number[rank][receiver] += 1
        dist.barrier()


@pytest.mark.parametrize("hosts", ["aab", pytest.param("aabb", marks=pytest.mark.slow)])
def test_random_messages_by_name_and_from_any(ranks_on: Callable[[str], Ranks], hosts: str) -> None:
    ranks_on(hosts).run(random_messages, 1, 150)


def test_it_times_out_by_itself_and_the_next_receive_gets_the_message(scripts: Scripts) -> None:
    scripts.start(
        """
        os.environ["ANYACCEL_SHM_HOST"] = "aab"[rank]
        start(60)
        got = torch.zeros(3)
        if rank == 0:
            anyaccel.distributed.set_timeout(timedelta(seconds=2))
            say(error_of(lambda: dist.recv(got)))
            anyaccel.distributed.set_timeout(timedelta(seconds=60))
            pending = dist.irecv(got)
            try:
                pending.wait(timedelta(milliseconds=100))
            except RuntimeError as error:
                say(error)
        dist.barrier()
        if rank == 2: dist.send(torch.full((3,), 7.0), 0)
        if rank == 0:
            pending.wait()
            say(got.tolist(), pending._source_rank())
        dist.barrier()
        if rank == 0:
            say(error_of(lambda: dist.irecv(torch.ones(3)[:1].expand(3))))
            last = dist.irecv(got)
            dist.destroy_process_group()
            say(error_of(last.wait))
            tell_others()
        else:
            stay_until_told()
        """,
        3,
    )
    late, unfinished, message, refused, ended = scripts.outputs()[0].splitlines()
    assert "shm recv failed: Timed out waiting 2000ms: got nothing from any rank" in late
    assert "Timed out waiting 100ms" in unfinished
    assert "The operation continues" in unfinished
    assert message == "[7.0, 7.0, 7.0] 2"
    assert "elements share memory" in refused
    assert "shut down" in ended


def test_killed_ranks_do_not_stand_in_the_way_of_others(scripts: Scripts) -> None:
    """Rank 3 is killed after it was asked for a message, and rank 2 while it has asked others and they have not sent."""
    scripts.start(
        """
        os.environ["ANYACCEL_SHM_HOST"] = "aabbb"[rank]
        start(60)
        got = torch.zeros(3)
        if rank in (0, 2): asking = dist.irecv(got)
        dist.barrier()
        say("ready")
        if rank in (2, 3): time.sleep(600)
        if rank == 4:
            while not os.path.exists(store + ".killed"): time.sleep(0.01)
            dist.send(torch.full((3,), 4.0), 0)
        if rank == 0:
            asking.wait()
            say(got.tolist(), asking._source_rank())
            dist.send(torch.ones(3), 1)
            say(dist.recv(got), got.tolist())
            say(dist.recv(got), got.tolist())
            anyaccel.distributed.set_timeout(timedelta(seconds=1))
            say(error_of(lambda: dist.recv(got)))
            say(error_of(lambda: dist.recv(got, 3)))
            say("over")
        if rank == 1:
            dist.recv(got, 0)
            dist.send(torch.full((3,), 1.0), 0)
            dist.send(torch.full((3,), 5.0), 0)
        while not os.path.exists(store + ".over"): time.sleep(0.01)
        os._exit(0)  # ranks that are gone take part in nothing
        """,
        5,
    )
    scripts.wait_for("ready")
    scripts.signal(2, signal.SIGKILL)
    scripts.signal(3, signal.SIGKILL)
    scripts.touch(".killed")
    scripts.wait_for("over", 0)
    scripts.touch(".over")
    _, first, second, third, late, named, _ = scripts.outputs(0, 1, 4)[0].splitlines()
    assert first == "[4.0, 4.0, 4.0] 4"
    assert [second, third] == ["1 [1.0, 1.0, 1.0]", "1 [5.0, 5.0, 5.0]"]
    assert "shm recv failed: Timed out waiting 1000ms: got nothing from any rank" in late
    assert named != "no error"


def test_a_large_message_whose_sender_is_killed_fails(scripts: Scripts) -> None:
    """Gloo does not notice that it has stopped in the middle, and waits for the rest until the timeout."""
    scripts.start(
        """
        os.environ["ANYACCEL_SHM_HOST"] = "aab"[rank]
        start(60)
        got = torch.zeros(30_000_000 if rank == 0 else 3)
        if rank == 0:
            anyaccel.distributed.set_timeout(timedelta(seconds=2))
            large = dist.irecv(got)
            anyaccel.distributed.set_timeout(timedelta(seconds=60))
            while large._source_rank() < 0: time.sleep(0.001)
            say("known")
            while not os.path.exists(store + ".killed"): time.sleep(0.01)
            said = error_of(large.wait)
            is_right = said == error_of(large.wait) and (said != "no error" or bool((got == 1).all()))
            say(is_right, large.is_completed())
            dist.recv(got[:3])
            say(got[:3].tolist())
        if rank == 2:
            dist.send(torch.ones(30_000_000), 0)
            time.sleep(600)
        if rank == 1:
            while not os.path.exists(store + ".killed"): time.sleep(0.01)
            dist.send(torch.full((3,), 1.0), 0)
        os._exit(0)
        """,
        3,
    )
    scripts.wait_for("known", 0)
    scripts.signal(2, signal.SIGKILL)
    scripts.touch(".killed")
    *_, ended, after = scripts.outputs(0, 1)[0].splitlines()
    assert ended == "True True"
    assert after == "[1.0, 1.0, 1.0]"


def test_empty_messages_and_several_threads(ranks_on: Callable[[str], Ranks]) -> None:
    ranks_on("aab").run(receive_in_threads, 40)


def receive_in_threads(count: int) -> None:
    """Four threads of rank 0 receive from any source at the same time, while the others send empty and other messages."""
    rank = dist.get_rank()
    if rank == 0:
        empty = torch.zeros(0)
        assert sorted(dist.recv(empty, tag=5) for _ in range(2)) == [1, 2]
        seen: list[tuple[int, int]] = []

        def receive() -> None:
            for _ in range(count // 2):
                got = torch.zeros(1)
                seen.append((dist.recv(got, tag=6), int(got)))

        threads = [threading.Thread(target=receive) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen) == [(source, i) for source in (1, 2) for i in range(count)], seen
    else:
        dist.send(torch.zeros(0), 0, tag=5)
        for i in range(count):
            dist.send(torch.full((1,), float(i)), 0, tag=6)
    dist.barrier()
