"""Messages that arrive late or never affect only their own operation."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .ranks import Scripts


def test_a_receive_that_nobody_waits_for_may_last_longer_than_the_timeout(scripts: Scripts) -> None:
    scripts.start(
        """
        start(30)
        got = torch.zeros(3)
        dist.barrier()
        anyaccel.distributed.set_timeout(timedelta(seconds=3))
        if rank == 0: pending = dist.irecv(got, 1)
        time.sleep(3.5)
        x = torch.ones(2)
        dist.all_reduce(x)
        if rank == 0: pending.wait()
        else: dist.send(torch.full((3,), 7.0), 0)
        say(x.tolist(), got.tolist())
        """,
        2,
    )
    assert scripts.outputs() == ["[2.0, 2.0] [7.0, 7.0, 7.0]\n", "[2.0, 2.0] [0.0, 0.0, 0.0]\n"]


def test_a_receive_that_timed_out_takes_no_later_message_and_the_group_goes_on(scripts: Scripts) -> None:
    scripts.start(
        """
        start(30)
        got, never = torch.zeros(3), torch.zeros(3)
        if rank == 0:
            anyaccel.distributed.set_timeout(timedelta(seconds=1))
            say(error_of(lambda: dist.recv(never, 1)))
            say(error_of(lambda: dist.recv(never)))
            anyaccel.distributed.set_timeout(timedelta(seconds=30))
            tell_others()
        else:
            stay_until_told()
        if rank == 0: dist.recv(got, 1)
        else: dist.send(torch.full((3,), 7.0), 0)
        x = torch.ones(2)
        dist.all_reduce(x)
        say(x.tolist(), got.tolist(), never.tolist())
        """,
        2,
    )
    first, last = scripts.outputs()
    one, two, after = first.splitlines()
    for text in (one, two):
        assert "shm recv failed: Timed out waiting 1000ms: got nothing from rank 1" in text
    assert after == "[2.0, 2.0] [7.0, 7.0, 7.0] [0.0, 0.0, 0.0]"
    assert last == "[2.0, 2.0] [0.0, 0.0, 0.0] [0.0, 0.0, 0.0]\n"


def test_a_send_that_timed_out_is_delivered_when_its_receive_comes(scripts: Scripts) -> None:
    scripts.start(
        """
        start(30)
        got = torch.zeros(200_000)
        if rank == 0:
            anyaccel.distributed.set_timeout(timedelta(seconds=1))
            say(error_of(lambda: dist.send(torch.full((200_000,), 7.0), 1)))
            anyaccel.distributed.set_timeout(timedelta(seconds=30))
            tell_others()
            dist.send(torch.full((200_000,), 8.0), 1, tag=1)
        else:
            stay_until_told()
            dist.recv(got, 0)
            say(got.unique().tolist())
            dist.recv(got, 0, tag=1)
            say(got.unique().tolist())
        """,
        2,
    )
    first, second = scripts.outputs()
    assert "shm send failed: Timed out waiting 1000ms" in first
    assert second == "[7.0]\n[8.0]\n"


def test_the_death_of_a_rank_ends_its_messages_and_no_others(scripts: Scripts) -> None:
    scripts.start(
        """
        start(20)
        dist.barrier()
        if rank == 2:
            say("ready")
            time.sleep(60)
        got = torch.zeros(3)
        pending = dist.irecv(torch.zeros(3), 2)
        say("ready")
        text = error_of(pending.wait)
        for turn in range(3):
            if rank == 0:
                dist.send(torch.full((3,), float(turn)), 1)
                dist.recv(got, 1)
            else:
                dist.recv(got, 0)
                dist.send(got + 1, 0)
        say(got.tolist(), text)
        say(error_of(lambda: dist.all_reduce(got)))
        """,
        3,
    )
    scripts.wait_for("ready")
    scripts.signal(2, signal.SIGKILL)
    for rank, output in enumerate(scripts.outputs(0, 1)):
        _, messages, collective = output.splitlines()
        assert messages.startswith(f"{[3.0 - rank] * 3} shm recv failed: got rank 2")
        assert "dead" in messages
        assert "all_reduce" in collective
        assert "rank 2" in collective


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_what_a_rank_refuses_is_neither_sent_nor_taken(scripts: Scripts, hosts: str) -> None:
    """As on gloo: the next message of that rank or the next receive takes its place; only the end of the rank is told."""
    scripts.start(
        f"os.environ['ANYACCEL_SHM_HOST'] = {hosts!r}[rank]\nstart(30)\n"
        """
got = torch.zeros(3)
if rank == 0:
    say(error_of(lambda: dist.send(torch.ones(3).to_sparse(), 1)))
    dist.send(torch.full((3,), 7.0), 1)
    dist.send(torch.full((3,), 8.0), 1)
    say(error_of(lambda: dist.send(torch.ones(3).to_sparse(), 1)))
else:
    dist.recv(got, 0)
    say(got.tolist())
    say(error_of(lambda: dist.recv(torch.zeros(1).expand(3), 0)))
    dist.recv(got, 0)
    say(got.tolist())
    say(error_of(lambda: dist.recv(got, 0)))
""",
        2,
    )
    sender, receiver = scripts.outputs()
    assert sender.count("Could not run 'c10d::send'") == 2  # torch's own refusal, which no backend sees
    first, refusal, second, *end = receiver.splitlines()
    assert first == "[7.0, 7.0, 7.0]"
    assert "elements share memory" in refusal
    assert second == "[8.0, 8.0, 8.0]"
    text = "\n".join(end)
    assert ("got rank 0" if hosts == "aa" else "Connection") in text  # in gloo's words, closed or reset
    assert "imed out" not in text


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_after_a_refusal_in_a_batch_the_group_goes_on(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        """
        start()
        peer, got = 1 - rank, torch.zeros(4)
        def batch(*outputs):
            sends = [dist.P2POp(dist.isend, torch.full((4,), 1.0 + rank), peer) for _ in outputs]
            [work.wait() for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, one, peer) for one in outputs] + sends)]
        say(error_of(lambda: batch(torch.zeros(1).expand(4)))[:40])
        x, y = torch.ones(3), torch.full((3,), float(rank))
        dist.all_reduce(x)
        dist.broadcast(y, 1)
        batch(got)
        say(x.tolist(), y.tolist(), got.tolist())
        """,
        2,
        hosts,
    )
    for rank, output in enumerate(scripts.outputs()):
        said = [2.0 - rank] * 4
        assert output == f"shm failed: got an output of sizes [4] a\n[2.0, 2.0, 2.0] [1.0, 1.0, 1.0] {said}\n"


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_threads_may_send_and_receive_in_batches_and_one_by_one(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        """
        start()
        peer, wrong = 1 - rank, []
        def batches(tag):
            for i in range(300):
                a, b = torch.full((8,), float(i)), torch.zeros(8)
                both = [dist.P2POp(dist.isend, a, peer, tag=tag), dist.P2POp(dist.irecv, b, peer, tag=tag)]
                [work.wait() for work in dist.batch_isend_irecv(both)]
                if not b.eq(i).all(): wrong.append((tag, i, b))
        def singles(tag):
            for i in range(300):
                a, b = torch.full((8,), float(i)), torch.zeros(8)
                work = dist.isend(a, peer, tag=tag)
                dist.recv(b, peer, tag=tag)
                work.wait()
                if not b.eq(i).all(): wrong.append((tag, i, b))
        threads = [threading.Thread(target=one, args=(tag,)) for tag, one in enumerate((batches, singles, batches), 1)]
        [one.start() for one in threads]
        [one.join(60) for one in threads]
        say(wrong, any(one.is_alive() for one in threads))
        os._exit(0)
        """,
        2,
        hosts,
    )
    assert scripts.outputs() == ["[] False\n"] * 2


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_several_threads_may_wait_for_one_message_and_again(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        """
        start()
        x = torch.full((3,), float(rank))
        work = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
        done = []
        threads = [threading.Thread(target=lambda: done.append(work.wait())) for _ in range(3)]
        [one.start() for one in threads]
        [one.join(20) for one in threads]
        began = time.monotonic()
        work.wait()
        work.wait(timedelta(seconds=20))
        say(done, time.monotonic() - began < 10, x.tolist())
        """,
        2,
        hosts,
    )
    assert scripts.outputs() == ["[True, True, True] True [0.0, 0.0, 0.0]\n"] * 2


def test_a_sender_that_dies_in_the_middle_of_a_message_to_any_is_named_at_once(scripts: Scripts) -> None:
    scripts.start(
        """
        def kill_when_it_has_begun():
            while got[0] == 0: time.sleep(0.001)
            os.kill(sender, 9)

        start(60)
        pids = [None] * world
        dist.all_gather_object(pids, os.getpid())
        sender = pids[1]
        if rank == 1:
            dist.send(torch.ones(100_000_000), 0)
            time.sleep(60)
        got = torch.zeros(100_000_000)
        if rank == 0:
            threading.Thread(target=kill_when_it_has_begun).start()
            began = time.monotonic()
            text = error_of(lambda: dist.recv(got))
            say("rank 1" in text and "dead" in text and "rank 2" not in text.split("while")[0], time.monotonic() - began < 20)
        elif rank == 2:
            time.sleep(3)
        os._exit(0)
        """,
        3,
    )
    assert scripts.outputs(0) == ["True True\n"]


@pytest.mark.parametrize(("hosts", "source"), [("aa", 1), ("ab", 1), ("aa", None), ("aab", None)])
def test_a_wait_ends_at_its_own_timeout_while_another_thread_waits(
    scripts: Scripts, hosts: str, source: int | None
) -> None:
    scripts.start(
        f"""
        start()
        x = torch.full((3,), float(rank))
        if rank == world - 1:
            stay_until_told()
            dist.send(x, 0)
        elif rank == 0:
            work, done = dist.irecv(x, {source}), []
            thread = threading.Thread(target=lambda: done.append(work.wait()))
            thread.start()
            time.sleep(0.5)
            began = time.monotonic()
            text = error_of(lambda: work.wait(timedelta(seconds=1)))
            say("operation continues" in text, time.monotonic() - began < 20)
            tell_others()
            thread.join(20)
            say(done, x.tolist())
        dist.barrier()
        """,
        len(hosts),
        hosts,
    )
    assert scripts.outputs(0) == [f"True True\n[True] {[len(hosts) - 1.0] * 3}\n"]


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_a_message_of_a_group_that_was_destroyed_says_so(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        """
        start()
        work = dist.irecv(torch.ones(3), 1 - rank)
        dist.barrier()
        if rank == 0:
            dist.destroy_process_group()
            began = time.monotonic()
            say("shut down" in error_of(work.wait), time.monotonic() - began < 10)
            tell_others()
        else:
            stay_until_told()
            say("no error" != error_of(work.wait))
        """,
        2,
        hosts,
    )
    assert scripts.outputs() == ["True True\n", "True\n"]


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_a_receive_into_strided_memory_that_requires_grad_is_whole(scripts: Scripts, hosts: str) -> None:
    """The second tensor's gradient would be lost if the copy counted as a change of it."""
    scripts.start(
        """
        start()
        leaf = torch.nn.Parameter(torch.zeros(4, 3).t())
        w = torch.ones(4, 3, requires_grad=True)
        node = (w * 2).t()
        if rank == 0:
            dist.send(torch.full((3, 4), 5.0), 1)
            dist.send(torch.full((3, 4), 6.0), 1)
        else:
            dist.recv(leaf, 0)
            dist.recv(node, 0)
            node.sum().backward()
            say(leaf.unique().tolist(), node.unique().tolist(), w.grad.unique().tolist())
        dist.barrier()
        """,
        2,
        hosts,
    )
    assert scripts.outputs(1) == ["[5.0] [6.0] [2.0]\n"]


@pytest.mark.parametrize("hosts", ["aaa", "aab", "abc"])
def test_an_empty_message_may_come_from_any_rank(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        """
        start(10)
        for tag in range(3):
            if rank < 2:
                dist.send(torch.empty(0), 2, tag=2 * tag + rank)
            else:
                say([dist.recv(torch.empty(0), tag=2 * tag + peer) for peer in range(2)])
        x = torch.ones(2)
        dist.all_reduce(x)
        say(x.tolist())
        """,
        3,
        hosts,
    )
    assert scripts.outputs(2) == ["[0, 1]\n" * 3 + "[3.0, 3.0]\n"]


@pytest.mark.parametrize(("hosts", "source"), [("aa", 0), ("aa", None), ("abb", None)])
def test_a_negative_timeout_of_a_wait_is_over_at_once(scripts: Scripts, hosts: str, source: int | None) -> None:
    scripts.start(
        f"""
        start()
        x = torch.ones(3)
        if rank == world - 1:
            work = dist.irecv(x, {source})
            began = time.monotonic()
            text = error_of(lambda: work.wait(timedelta(seconds=-1)))
            say(text != "no error", time.monotonic() - began < 10)
        dist.barrier()
        if rank == 0:
            dist.send(x, world - 1)
        elif rank == world - 1:
            error_of(work.wait)
        dist.barrier()
        """,
        len(hosts),
        hosts,
    )
    assert scripts.outputs(len(hosts) - 1) == ["True True\n"]


@pytest.mark.parametrize("order", ["sends first", "receives first", "by tags"])
def test_thousands_of_messages_may_be_on_the_way(scripts: Scripts, order: str) -> None:
    """Where each turn of each wait asked every one of them, half as many took longer than 25 seconds."""
    scripts.start(
        f"""
        start()
        count, order = 4_000, {order!r}
        received = [torch.zeros(4) for _ in range(count)]
        tags = list(range(count)) if order == "by tags" else [0] * count

        def send():
            return [dist.isend(torch.full((4,), float(number)), 1 - rank, tag=tags[number]) for number in range(count)]

        def receive():
            numbers = reversed(range(count)) if order == "by tags" else range(count)
            return [dist.irecv(received[number], 1 - rank, tag=tags[number]) for number in numbers]

        works = [*receive(), *send()] if order == "receives first" else [*send(), *receive()]
        for work in works:
            work.wait()
        say(all(bool((one == number).all()) for number, one in enumerate(received)))
        x = torch.ones(2)
        dist.all_reduce(x)
        say(x.tolist())
        """,
        2,
    )
    assert all(output.splitlines() == ["True", "[2.0, 2.0]"] for output in scripts.outputs())


def test_a_negative_tag_is_refused(scripts: Scripts) -> None:
    scripts.start(
        """
        start()
        for call in (dist.send, dist.recv):
            say(error_of(lambda: call(torch.ones(1), 1 - rank, tag=-1)))
        say(error_of(lambda: dist.recv(torch.ones(1), tag=-1)))
        dist.barrier()
        """,
        2,
    )
    for output in scripts.outputs():
        assert output.count("got tag -1; expected") == 3
