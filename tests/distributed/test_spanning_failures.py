"""What ends, limits or checks a group reaches every rank of it, on whichever host, and nothing that users have there."""

from __future__ import annotations

import signal
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .ranks import Scripts


def test_a_monitored_barrier_takes_no_message_of_the_users(scripts: Scripts) -> None:
    """Gloo's sends its own with the tags 0, 1, …"""
    scripts.start(
        """
        start(15)
        for _ in range(5):
            dist.all_reduce(torch.ones(2000))
        if rank == 1:
            sent = dist.isend(torch.full((1000,), 7.0), 0)
            time.sleep(0.3)
        if rank == 2:
            time.sleep(1.5)
            open(store + ".came", "w").write(str(time.monotonic()))
        dist.monitored_barrier(timeout=timedelta(seconds=10))
        assert time.monotonic() > float(open(store + ".came").read())  # nobody has passed the barrier before rank 2
        if rank == 0:
            received = torch.zeros(1000)
            dist.recv(received, 1)
            say(received.unique().tolist())
        if rank == 1:
            sent.wait()
        dist.barrier()
        """,
        3,
        "abc",
    )
    assert scripts.outputs()[0] == "[7.0]\n"


@pytest.mark.parametrize(("wait_all", "named"), [(False, "Rank 1 failed"), (True, "Ranks 1, 2 failed")])
def test_a_monitored_barrier_names_who_is_missing_on_other_hosts(scripts: Scripts, wait_all: bool, named: str) -> None:
    scripts.start(
        f"""
        start(20)
        dist.barrier()
        if rank == 0:
            begun = time.monotonic()
            say(error_of(lambda: anyaccel.distributed.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks={wait_all})))
            assert time.monotonic() - begun < 15
            tell_others()
        else:
            stay_until_told()
        os._exit(0)
        """,
        3,
        "abc",
    )
    said = scripts.outputs()[0]
    assert "Rank 0 timed out in monitoredBarrier after 1000 ms" in said
    assert f"{named} to pass monitoredBarrier" in said


def _after_rank_1_was_killed(scripts: Scripts, hosts: str, last: int, script: str) -> None:
    """Run a script on the ranks, of which the second does nothing, and is killed; the others stay until the last is done."""
    ready = "start(60)\ndist.barrier()\nsay('ready')\nif rank == 1: time.sleep(100)\n"
    ended = f"\ntell_others() if rank == {last} else stay_until_told()\nos._exit(0)\n"
    scripts.start(ready + textwrap.dedent(script) + ended, len(hosts), hosts)
    scripts.wait_for("ready")
    time.sleep(1)
    scripts.signal(1, signal.SIGKILL)


@pytest.mark.parametrize("busy", [0, 2])
def test_a_rank_that_dies_on_another_host_is_named_at_once(scripts: Scripts, busy: int) -> None:
    """It does not lead its host, whose leader may compute when it dies, and calls its next operation after that."""
    _after_rank_1_was_killed(
        scripts,
        "aabb",
        3,
        f"""
        if rank == 0:
            time.sleep({busy})
        begun = time.monotonic()
        said = error_of(lambda: dist.all_reduce(torch.ones(3000)))
        say(int(time.monotonic() - begun), said)
        """,
    )
    for said in scripts.outputs(0, 2, 3):
        seconds, _, text = said.partition("\n")[2].partition(" ")
        assert int(seconds) < 20, said
        assert "rank 1 (pid" in text, said


def test_messages_that_threads_wait_for_end_with_the_group(scripts: Scripts) -> None:
    _after_rank_1_was_killed(
        scripts,
        "aab",
        0,
        """
        if rank == 0:
            calls = [lambda: dist.recv(torch.ones(3), 2, tag=3), lambda: dist.send(torch.ones(3), 2, tag=5),
                     lambda: dist.recv(torch.ones(3), tag=4)]
            threads = [threading.Thread(target=lambda call=call: say(error_of(call)[:3])) for call in calls]
            for thread in threads:
                thread.start()
            error_of(lambda: dist.all_reduce(torch.ones(3000)))
            begun = time.monotonic()
            for thread in threads:
                thread.join()
            assert time.monotonic() - begun < 20
        """,
    )
    ready, *ended = scripts.outputs(0)[0].splitlines()
    assert (ready, len(ended)) == ("ready", 3)
    assert "no " not in ended  # error


def test_a_timeout_that_is_set_later_holds_for_what_is_under_way_between_hosts(scripts: Scripts) -> None:
    scripts.start(
        """
        import signal
        start(60)
        open(f"{store}.pid{rank}", "w").write(str(os.getpid()))
        own, every = torch.full((30_000_000,), rank + 1.0), torch.zeros(60_000_000)
        dist.barrier()
        anyaccel.distributed.set_timeout(timedelta(seconds=2))
        if rank == 1:
            dist.all_gather_into_tensor(every, own)
            os._exit(0)

        def stop_the_other():  # in the middle: some of what it sends has come
            while every[30_000_000] == 0:
                time.sleep(0.001)
            os.kill(int(open(f"{store}.pid1").read()), signal.SIGSTOP)

        threading.Thread(target=stop_the_other).start()
        begun = time.monotonic()
        say(error_of(lambda: dist.all_gather_into_tensor(every, own)))
        assert time.monotonic() - begun < 20
        os._exit(0)
        """,
        2,
        "ab",
    )
    assert "Timed out waiting 2000ms" in scripts.outputs(0)[0]


def test_a_thread_that_holds_pythons_lock_stalls_no_other_rank(scripts: Scripts) -> None:
    scripts.start(
        """
        import ctypes
        start(60)
        x = torch.ones(30_000_000)
        dist.barrier()
        anyaccel.distributed.set_timeout(timedelta(seconds=4))
        if rank == 0:
            work = dist.all_reduce(x, async_op=True)
            held = threading.Thread(target=lambda: (time.sleep(0.3), ctypes.PyDLL(None).sleep(8)))
            held.start()
            work.wait()
            held.join()
        else:
            time.sleep(1)
            dist.all_reduce(x)
        say(x.unique().tolist())
        tell_others() if rank == 0 else stay_until_told()
        """,
        2,
    )
    assert scripts.outputs() == ["[2.0]\n"] * 2


@pytest.mark.parametrize("hosts", ["", "aab"])
def test_a_timeout_of_centuries_is_none(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        """
        start(9_460_800_000)
        x = torch.ones(2)
        dist.all_reduce(x)
        dist.all_gather_into_tensor(torch.empty(6), x)
        say(x.tolist())
        """,
        3,
        hosts,
    )
    assert scripts.outputs() == ["[3.0, 3.0]\n"] * 3


def test_a_groups_timeout_is_set_for_each_of_its_devices(scripts: Scripts) -> None:
    scripts.start(
        """
        dist.init_process_group("cpu:shm,cuda:gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
        set_timeout = getattr(dist, "set_timeout", dist.distributed_c10d._set_pg_timeout)
        set_timeout(timedelta(seconds=5), dist.group.WORLD)
        backends = [dist.group.WORLD._get_backend(torch.device(kind)) for kind in ("cpu", "cuda")]
        dist.all_reduce(torch.ones(1))  # gloo fails where the other rank leaves before both are connected
        say([getattr(one, "options")._timeout.seconds if hasattr(one, "options") else 5 for one in backends])
        """,
        2,
    )
    assert scripts.outputs() == ["[5, 5]\n"] * 2
