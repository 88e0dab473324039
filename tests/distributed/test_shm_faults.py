"""What ranks see when others die, stop, disagree, fork or leave: real processes, real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .ranks import PROLOGUE

if TYPE_CHECKING:
    from .ranks import Scripts

ROOT = Path(__file__).parents[2]


KILLED = """
start()
x = torch.ones({size})
dist.all_reduce(x)
shared = [line for line in open("/proc/self/maps") if "anyaccel" in line and ".so" not in line]
named = [line for line in open("/proc/self/maps") if "/dev/shm/" in line]
say("ready", len(shared) > 0, named)
if rank == 1:
    if {in_operation}:
        while True:
            dist.all_reduce(x)
    time.sleep(60)
def go():
    while True:
        dist.all_reduce(x)
text = error_of(go)
say(time.time(), text)
began = time.perf_counter()
say("again", error_of(lambda: dist.barrier()), time.perf_counter() - began)
"""


@pytest.mark.parametrize("in_operation", [False, True], ids=["before", "during"])
def test_survivors_name_a_killed_rank_long_before_the_timeout(scripts: Scripts, in_operation: bool) -> None:
    scripts.start(KILLED.format(size=3_000_000 if in_operation else 10, in_operation=in_operation), 3)
    scripts.wait_for("ready")
    time.sleep(0.5)
    scripts.signal(1, signal.SIGKILL)
    killed = time.time()
    for output in scripts.outputs(0, 2):
        ready, first, again = output.splitlines()
        assert ready == "ready True []"  # memory without a name: nothing is left when ranks are killed
        moment, _, text = first.partition(" ")
        assert float(moment) - killed < 10  # a second where nothing else runs; the group's timeout is 30
        assert f"rank 1 (pid {scripts.pid(1)}) dead" in text
        assert "all_reduce" in text
        assert "rank 1" in again
        assert float(again.split()[-1]) < 10


def test_a_rank_that_left_is_named(scripts: Scripts) -> None:
    scripts.start(
        """
        start()
        dist.barrier()
        if rank == 1:
            dist.destroy_process_group()
            time.sleep(2)
        else:
            say(error_of(lambda: dist.all_reduce(torch.ones(3))))
        """,
        2,
    )
    text = scripts.outputs()[0]
    assert "all_reduce" in text
    assert "rank 1" in text
    assert "leaving the group" in text


@pytest.mark.parametrize("how", ["late", "stopped"])
def test_a_timeout_names_who_is_missing_and_in_what(scripts: Scripts, how: str) -> None:
    scripts.start(
        """
        start(seconds=30)
        x = torch.ones(5)
        dist.all_reduce(x)
        anyaccel.distributed.set_timeout(timedelta(seconds=2))
        say("ready")
        if rank == 2:
            while not all(os.path.exists(f"{store}.ended{other}") for other in range(2)): time.sleep(0.05)
        began = time.perf_counter()
        say(error_of(lambda: dist.all_reduce(x)), "|", time.perf_counter() - began)
        open(f"{store}.ended{rank}", "w").close()
        """,
        3,
    )
    scripts.wait_for("ready")
    if how == "stopped":
        scripts.signal(2, signal.SIGSTOP)
    for output in scripts.outputs(0, 1):
        text, seconds = output.splitlines()[1].split("|")
        assert "all_reduce #2 failed: Timed out waiting 2000ms: got nothing from rank 2" in text
        assert float(seconds) > 1.5
    if how == "late":
        assert "Timed out" in scripts.outputs(2)[0]  # it gets the error too, and writes nothing


MISMATCHES = {
    "size": ("dist.all_reduce(torch.ones(10 + rank))", ["10 float32", "11 float32"]),
    "dtype": (
        "dist.all_reduce(torch.ones(4, dtype=torch.float32 if rank else torch.float64))",
        ["4 float32", "4 float64"],
    ),
    "operation": ("dist.all_reduce(torch.ones(4), (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[rank])", ["SUM", "MAX"]),
    "root": ("dist.broadcast(torch.ones(4), rank)", ["root 0", "root 1"]),
    "collective": (
        "dist.barrier() if rank else dist.all_gather_into_tensor(torch.ones(8), torch.ones(4))",
        ["barrier", "all_gather"],
    ),
    "large and small": ("dist.all_reduce(torch.ones(2_000_000 if rank else 2))", ["2000000 float32", "of 2 float32"]),
    "all_gather": (
        "dist.all_gather([torch.ones(3), torch.ones(3)], torch.ones(3 + rank))",
        ["rank 1", "4 float32", "expects 3"],
    ),
    "splits": (
        "dist.all_to_all_single(torch.ones(4), torch.ones(4), [2, 2], [1, 3] if rank else [2, 2])",
        ["with 1 float32", "expects 2"],
    ),
    "types of one width": (
        "dist.broadcast(torch.zeros(4, dtype=torch.float8_e5m2fnuz if rank else torch.float8_e4m3fnuz), 0)",
        ["a 1-byte type"],
    ),
    "coalesced": ("dist.all_reduce_coalesced([torch.ones(2) for _ in range(2 + rank)])", ["one of 2", "one of 3"]),
    "message": (
        "dist.recv(torch.ones(3), 0) if rank else dist.send(torch.ones(5), 1)",
        ["sending 5 float32", "receiving 3 float32"],
    ),
    "large message": (
        "dist.recv(torch.ones(300_000, dtype=torch.int32), 0) if rank else dist.send(torch.ones(300_000), 1)",
        ["sending 300000 float32", "receiving 300000 int32"],
    ),
}


def test_ranks_that_differ_both_raise_and_go_on(scripts: Scripts) -> None:
    calls = "\n".join(f"say(error_of(lambda: {call}))" for call, _ in MISMATCHES.values())
    scripts.start(
        f"start(10)\n{calls}\nx = torch.full((3,), rank + 1.)\ndist.all_reduce(x)\nsay('then', x.tolist())\n", 2
    )
    for output in scripts.outputs():
        *errors, last = output.splitlines()
        assert last == "then [3.0, 3.0, 3.0]"
        assert len(errors) == len(MISMATCHES)
        for text, (name, (_, both)) in zip(errors, MISMATCHES.items(), strict=True):
            assert all(side in text for side in both), (name, text)


def test_nothing_is_written_where_ranks_differ(scripts: Scripts) -> None:
    scripts.start(
        """
        start(10)
        x = torch.full((500_000 + rank,), float(rank))
        error_of(lambda: dist.all_reduce(x))
        y = torch.full((5,), float(rank))
        error_of(lambda: dist.broadcast(y, rank))
        say(x.unique().tolist(), y.unique().tolist())
        """,
        2,
    )
    assert scripts.outputs() == ["[0.0] [0.0]\n", "[1.0] [1.0]\n"]


def test_a_forked_child_may_not_use_the_group_and_harms_nobody(scripts: Scripts) -> None:
    scripts.start(
        """
        start(10)
        x = torch.ones(4)
        dist.all_reduce(x, async_op=True).wait()
        pending = dist.irecv(torch.empty(3), 1 - rank)
        child = os.fork()
        if child == 0:
            text = error_of(lambda: dist.all_reduce(torch.ones(4)))
            assert "was forked" in error_of(pending.wait)
            os.write(1, (text[:60] + "\\n").encode())
            dist.destroy_process_group()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        dist.send(torch.ones(3), 1 - rank)
        pending.wait()
        dist.all_reduce(x)
        say(x.tolist())
        """,
        2,
    )
    for output in scripts.outputs():
        assert "shm failed: got an operation in a process that was forked" in output
        assert "[4.0, 4.0, 4.0, 4.0]" in output


def test_interrupting_a_waiting_rank_ends_its_wait_long_before_the_timeout(scripts: Scripts) -> None:
    scripts.start(
        """
        start(60)
        dist.barrier()
        if rank == 1:
            time.sleep(60)
        for number in range(5):
            try:
                say("ready", number)
                dist.all_reduce(torch.ones(3))
            except KeyboardInterrupt:
                say("interrupted", number, time.time())
        os._exit(0)
        """,
        2,
    )
    sent = []
    for number in range(5):
        scripts.wait_for(f"ready {number}", 0)
        time.sleep(0.5)
        scripts.signal(0, signal.SIGINT)
        sent.append(time.time())
        scripts.wait_for(f"interrupted {number}", 0)
    moments = [float(line.split()[-1]) for line in scripts.outputs(0)[0].splitlines() if "interrupted" in line]
    assert min(moment - begun for moment, begun in zip(moments, sent, strict=True)) < 0.5  # others may be late


def test_an_aborted_group_is_over_for_every_rank(scripts: Scripts) -> None:
    scripts.start(
        """
        start(30)
        dist.barrier()
        if rank == 0:
            time.sleep(0.5)
            dist.group.WORLD._get_backend(torch.device("cpu")).abort()
        say(error_of(lambda: dist.all_reduce(torch.ones(3))))
        say(error_of(dist.barrier))
        """,
        2,
    )
    for output in scripts.outputs():
        assert output.count("the process group was aborted by rank 0") == 2


@pytest.mark.parametrize("hosts", ["aab", "ab"])
def test_an_abort_wakes_who_waits_for_another_host(scripts: Scripts, hosts: str) -> None:
    """Gloo's own abort wakes nobody."""
    scripts.start(
        f"""
os.environ["ANYACCEL_SHM_HOST"] = {hosts!r}[rank]
start(60)
last = world - 1
waits = {{
    "collective": lambda group: dist.all_reduce(torch.ones(3), group=group, async_op=True).wait,
    "queued": lambda group: [dist.barrier(group, async_op=True), dist.barrier(group, async_op=True)][1].wait,
    "future": lambda group: dist.all_reduce(torch.ones(3), group=group, async_op=True).get_future().wait,
    "receive": lambda group: dist.irecv(torch.ones(3), last, group=group).wait,
    "from any": lambda group: lambda: dist.recv(torch.ones(3), group=group),
    "send": lambda group: dist.isend(torch.ones(3), last, group=group).wait,
    "monitored barrier": lambda group: lambda: anyaccel.distributed.monitored_barrier(group),
}}
for name, begin in waits.items():
    group = dist.new_group(backend="shm")
    if rank == 0:
        wait = begin(group)
        threading.Timer(0.3, group._get_backend(torch.device("cpu")).abort).start()
        begun = time.monotonic()
        error = error_of(wait)
        assert "aborted by rank 0" in error or "was shut down" in error, (name, error)
        assert time.monotonic() - begun < 10, name
        say(name)
dist.barrier()
os._exit(0)
""",
        len(hosts),
    )
    assert scripts.outputs(0)[0].split("\n")[:-1] == [
        "collective",
        "queued",
        "future",
        "receive",
        "from any",
        "send",
        "monitored barrier",
    ]


def test_a_new_timeout_holds_for_messages_of_another_host(scripts: Scripts) -> None:
    scripts.start(
        """
        os.environ["ANYACCEL_SHM_HOST"] = "ab"[rank]
        start(60)
        anyaccel.distributed.set_timeout(timedelta(seconds=1))
        begun = time.monotonic()
        if rank == 0: assert "Timed out" in error_of(lambda: dist.recv(torch.ones(3), 1))
        say(time.monotonic() - begun < 20)
        if rank == 1: time.sleep(3)
        os._exit(0)
        """,
        2,
    )
    assert scripts.outputs() == ["True\n"] * 2


def test_a_rank_that_never_starts_is_a_timeout_and_waiting_for_it_can_be_interrupted(scripts: Scripts) -> None:
    scripts.start(
        """
        world = 2
        say(error_of(lambda: start(1)))
        try:
            say("ready")
            store += "2"
            start(60)
        except KeyboardInterrupt:
            say("interrupted", time.time())
        """,
        1,
    )
    scripts.wait_for("ready")
    time.sleep(0.5)
    scripts.signal(0, signal.SIGINT)
    sent = time.time()
    (output,) = scripts.outputs(0)
    assert "shm init_process_group timed out: rank 1 did not connect" in output
    assert float(output.split()[-1]) - sent < 10


def test_other_threads_run_while_one_waits(scripts: Scripts) -> None:
    scripts.start(
        """
        start(30)
        def count():
            time.sleep(0.5)  # until this rank waits for the other, which waits for this count
            counted = 0
            while counted < 100_000: counted += 1
            tell_others()
        if rank == 0: threading.Thread(target=count, daemon=True).start()
        else: stay_until_told()
        dist.all_reduce(torch.ones(3))
        say("ended")
        os._exit(0)
        """,
        2,
    )
    assert scripts.outputs() == ["ended\n"] * 2


def test_a_wait_may_time_out_and_be_repeated(scripts: Scripts) -> None:
    scripts.start(
        """
        start(30)
        x = torch.ones(3)
        dist.barrier()
        if rank == 1:
            stay_until_told()
        work = dist.all_reduce(x, async_op=True)
        if rank == 0:
            text = error_of(lambda: work.wait(timedelta(milliseconds=100)))
            assert "wait timed out after 100 ms; the operation continues" in text, text
            assert not work.is_completed() and x.tolist() == [1.0] * 3
            tell_others()
        work.wait()
        assert work.is_completed() and work.is_success()
        say(x.tolist())
        """,
        2,
    )
    assert scripts.outputs() == ["[2.0, 2.0, 2.0]\n"] * 2


def test_a_hundred_groups_cost_little_and_are_freed(scripts: Scripts) -> None:
    scripts.start(
        """
        start(60)
        import psutil
        me = psutil.Process()
        dist.all_reduce(torch.ones(3), async_op=True).wait()
        dist.all_reduce(torch.ones(40_000))  # after which a thread looks for memory to give back
        def count():
            return me.num_fds(), me.num_threads()
        before = count()
        groups = [dist.new_group(backend="shm") for _ in range(100)]
        x = torch.ones(40_000)
        for group in groups:
            dist.all_reduce(x.fill_(1), group=group)
            assert x[0] == 2
        during = count()
        for group in groups:
            dist.destroy_process_group(group)
        del groups, group
        import gc; gc.collect()
        dist.barrier()
        after = count()
        mapped = sum("anyaccel-shm" in line for line in open("/proc/self/maps"))
        say(during[0] - before[0], during[1] - before[1], after[0] - before[0], mapped)
        """,
        2,
    )
    for output in scripts.outputs():
        descriptors, threads, left, mapped = map(int, output.split())
        assert descriptors <= 100
        assert threads == 0
        assert left <= 0
        assert mapped == 1


def test_threads_may_use_groups_of_their_own_and_share_one(scripts: Scripts) -> None:
    scripts.start(
        """
        start(60)
        groups = [dist.new_group() for _ in range(8)]
        wrong = []
        def own(group, value):
            for _ in range(50):
                x = torch.full((value * 97,), float(value))
                dist.all_reduce(x, group=group)
                if not torch.equal(x, torch.full_like(x, 2.0 * value)): wrong.append(value)
        threads = [threading.Thread(target=own, args=(group, i + 1)) for i, group in enumerate(groups)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        say("own", wrong)
        def shared():
            for _ in range(50):
                x = torch.ones(64)
                dist.all_reduce(x)  # all alike, so that their order among the threads does not matter
                if x[0] != 2: wrong.append("shared")
        threads = [threading.Thread(target=shared) for _ in range(16)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        say("shared", wrong)
        """,
        2,
    )
    assert scripts.outputs() == ["own []\nshared []\n"] * 2


CONTAINER = """
start(20)
x = torch.ones(5_000_000)
dist.all_reduce(x)
assert x[0] == world
if rank: dist.send(x, 0)
else: dist.recv(x, 1)
import shutil
os.write(1, f"{shutil.disk_usage('/dev/shm').total}\\n".encode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("size", [pytest.param("64k", marks=pytest.mark.slow), None], ids=["64 KiB", "none"])
def test_the_size_of_dev_shm_does_not_matter(tmp_path: Path, size: str | None) -> None:
    """In its own mount namespace, as in a container."""
    options = f"size={size}" if size else "size=4k,ro"
    script = tmp_path / "rank.py"
    arguments = "rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]\n"
    script.write_text(PROLOGUE + arguments + CONTAINER)
    ranks = " & ".join(f"{sys.executable} -W ignore {script} {rank} 2 {tmp_path}/store" for rank in range(2))
    shell = f"mount -t tmpfs -o {options} none /dev/shm && ({ranks} & wait)"
    command = ["unshare", "--mount", "sh", "-c", shell]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    if "unshare failed" in finished.stderr or "permission denied" in finished.stderr.lower():
        pytest.skip(f"no mount namespaces here: {finished.stderr}")
    assert [int(line) for line in finished.stdout.split()] == [65536 if size else 4096] * 2, finished.stderr


NEEDS_LIMIT_OF_THREADS = pytest.mark.skipif(
    os.getuid() != 0, reason="limits of threads do not hold for root, and others cannot become another user"
)
LIMITED = """if rank == 1:
            os.setuid(65534)
            resource.setrlimit(resource.RLIMIT_NPROC, (1, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
"""


@NEEDS_LIMIT_OF_THREADS
def test_a_process_that_may_have_no_more_threads_goes_on(scripts: Scripts) -> None:
    scripts.start(
        """
        import resource
        start()
        dist.barrier()
        if rank == 1:
            os.setuid(65534)
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
            say("threads", error_of(lambda: threading.Thread(target=print).start()))
        for _ in range(2):
            x = torch.ones(300_000)
            dist.all_reduce(x)
            say(x[-1].item())
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            time.sleep(0.01)
        say(x[-1].item(), work.get_future().then(lambda future: future.value()[0][0]).wait().item())
        received = torch.zeros(3)
        works = [dist.irecv(received, 1 - rank), dist.isend(torch.ones(3) * rank, 1 - rank)]
        for work in works:
            work.wait()
        say(received.tolist())
        """,
        2,
    )
    first, second = scripts.outputs()
    assert first.splitlines() == ["2.0", "2.0", "4.0 4.0", "[1.0, 1.0, 1.0]"]
    assert "thread" in second.splitlines()[0]
    assert second.splitlines()[1:] == ["2.0", "2.0", "4.0 4.0", "[0.0, 0.0, 0.0]"]


@NEEDS_LIMIT_OF_THREADS
def test_without_more_threads_a_callback_that_asks_holds_up_no_other_group(scripts: Scripts) -> None:
    """Another callback waits for it, and it asks for an operation that the thread of all groups has to move."""
    scripts.start(
        f"""
        import resource
        start()
        other = dist.new_group([0, 1])
        def all_reduce(group=None):
            return dist.all_reduce(torch.ones(3), group=group, async_op=True)
        def late(seconds):
            if rank == 0: time.sleep(seconds)
        for group in (None, other):  # both threads are there
            late(0.3)
            all_reduce(group).get_future().then(lambda future: None).wait()
        {LIMITED}
        late(0.2)
        works = all_reduce(), all_reduce()
        late(0.2)
        all_reduce(other)
        late(0.2)
        asked = all_reduce(other)
        until = time.monotonic() + 20
        def ask(future):
            while not asked.is_completed() and time.monotonic() < until: time.sleep(0.001)
            return asked.is_completed()
        first = works[0].get_future().then(ask)
        second = works[1].get_future().then(lambda future: future.value()[0].tolist())
        say(first.wait(), second.wait())
        """,
        2,
    )
    assert [output.strip() for output in scripts.outputs()] == ["True [2.0, 2.0, 2.0]"] * 2


@NEEDS_LIMIT_OF_THREADS
def test_without_more_threads_a_callback_on_the_thread_of_all_groups_waits_for_its_own_operation(
    scripts: Scripts,
) -> None:
    """It runs there, as another callback, which only sleeps on the only thread for callbacks, is overtaken."""
    scripts.start(
        f"""
        import resource
        start()
        def all_reduce(): return dist.all_reduce(torch.ones(3), async_op=True)
        if rank == 0: time.sleep(0.3)
        all_reduce().get_future().then(lambda future: None).wait()
        dist.barrier()
        {LIMITED}
        if rank == 0: time.sleep(0.5)
        works = all_reduce(), all_reduce()
        main = threading.get_native_id()
        futures = [work.get_future() for work in works]  # while the thread for callbacks is idle
        own = lambda future: (all_reduce().get_future().wait()[0].tolist(), threading.get_native_id() == main)
        sleeping = futures[0].then(lambda future: time.sleep(1))
        asking = futures[1].then(own)
        works[1].wait()
        sleeping.wait()
        say(*asking.wait())
        """,
        2,
    )
    first, second = scripts.outputs()
    assert first.startswith("[2.0, 2.0, 2.0]")
    assert second.strip() == "[2.0, 2.0, 2.0] False"


@NEEDS_LIMIT_OF_THREADS
@pytest.mark.parametrize("late", [0.3, 3.0], ids=["soon", "later than further threads stay"])
def test_without_more_threads_a_callback_may_wait_for_a_later_operation(scripts: Scripts, late: float) -> None:
    """The thread of all groups has to move that, and must not be the only one that could run the callback."""
    scripts.start(
        f"""
        import resource
        start()
        def all_reduce(late):
            if rank == 0: time.sleep(late)
            return dist.all_reduce(torch.ones(3), async_op=True)
        all_reduce(0.3).wait()  # starts that thread, and asks for no future
        {LIMITED}
        first, later = all_reduce({late}), all_reduce(0.3)
        future, awaited = first.get_future(), later.get_future()
        say(later.is_completed())
        say(future.then(lambda future: awaited.wait()[0].tolist()).wait())
        """,
        2,
    )
    outputs = [output.splitlines() for output in scripts.outputs()]
    assert [output[1] for output in outputs] == ["[2.0, 2.0, 2.0]"] * 2
    if late > 1:  # a rank may stop for as long as the other case takes
        assert outputs[1][0] == "False"  # nobody waited in get_future()


@NEEDS_LIMIT_OF_THREADS
def test_without_more_threads_nobody_waits_in_vain(scripts: Scripts) -> None:
    """For futures, in callbacks, by asking, for a callback after one that is busy, a message, and a rank that has died."""
    scripts.start(
        f"""
        import resource
        start()
        other = dist.new_group([0, 1])
        dist.barrier(other)
        def all_reduce(late, group=None):
            if rank == 0: time.sleep(late)
            return dist.all_reduce(torch.ones(3), group=group, async_op=True)
        third = dist.new_group([0, 1])
        asked = threading.Event()
        other_thread = lambda: (asked.wait(), dist.all_reduce(torch.ones(3), group=third))
        if rank == 1: threading.Thread(target=other_thread).start()
        all_reduce(0).get_future().then(lambda future: None).wait()  # a thread for callbacks is there, and soon busy
        {LIMITED}
        works = [all_reduce(0.1) for _ in range(6)]
        futures = [work.get_future().then(lambda future: time.sleep(0.1)) for work in works]
        for future in futures: future.wait()
        say(all_reduce(0.5).get_future().wait()[0].tolist())
        work = all_reduce(0.5)
        say(work.get_future().then(lambda future: work.wait()).wait())
        first, later = all_reduce(0.3), all_reduce(0.3)
        awaited = later.get_future()
        say(first.get_future().then(lambda future: awaited.wait()[0].tolist()).wait())
        works = [dist.irecv(torch.zeros(3), 1 - rank)]
        works[0].get_future()
        works.append(dist.isend(torch.ones(3), 1 - rank))
        for work in works: work.wait()
        if rank == 0: dist.all_reduce(torch.ones(3), group=third)
        work = all_reduce(0)
        asked.set()
        work.get_future()
        say("the other thread was not stopped")
        work = all_reduce(0.5)
        if rank == 1: resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))
        all_reduce(0, other).wait()  # a thread, of the other group
        while not work.is_completed(): time.sleep(0.01)
        say("asked")
        dist.barrier()
        if rank == 0: os._exit(0)
        if rank == 1: resource.setrlimit(resource.RLIMIT_NPROC, (1, 1000))
        work = dist.all_reduce(torch.ones(3), async_op=True)
        while not work.is_completed(): time.sleep(0.01)
        say("dead while rank 1" in error_of(work.wait))
        """,
        2,
    )
    first, second = scripts.outputs()
    both = ["[2.0, 2.0, 2.0]", "True", "[2.0, 2.0, 2.0]", "the other thread was not stopped", "asked"]
    assert first.splitlines() == both
    assert second.splitlines() == [*both, "True"]
