"""Restrictions of a host: other users, limits, filtered system calls, masked files. The group works with what remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .ranks import PROLOGUE

if TYPE_CHECKING:
    from pathlib import Path

    from .ranks import Scripts

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")

# A seccomp filter: system calls with these numbers fail with EPERM, all others are allowed.
DENY = """
import ctypes, struct
def deny(*numbers):
    allow, fail = 0x7FFF0000, 0x00050000 | 1
    program = [(0x20, 0, 0, 0)]
    for number in numbers: program += [(0x15, 0, 1, number), (0x06, 0, 0, fail)]
    install([*program, (0x06, 0, 0, allow)])
def install(program):
    code = b"".join(struct.pack("HBBI", *one) for one in program)
    kept = ctypes.create_string_buffer(code)
    filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(kept)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, filter) == 0, ctypes.get_errno()
memfd_create, fallocate, socket = (319, 285, 41) if os.uname().machine == "x86_64" else (279, 47, 198)

def deny_unix_sockets():  # as systemd's RestrictAddressFamilies=AF_INET AF_INET6
    fail = 0x00050000 | 97
    asks = [(0x20, 0, 0, 0), (0x15, 0, 3, socket), (0x20, 0, 0, 16), (0x15, 0, 1, 1)]
    install([*asks, (0x06, 0, 0, fail), (0x06, 0, 0, 0x7FFF0000)])
"""
WORKS = """
x = torch.full((50_000,), rank + 1.0)
dist.all_reduce(x)
outputs = [torch.empty(3) for _ in range(world)]
dist.all_gather(outputs, torch.full((3,), float(rank)))
y = torch.full((3,), float(rank))
dist.broadcast(y, world - 1)
dist.barrier()
say(f"{x.unique().tolist()} {torch.cat(outputs).tolist()} {y.tolist()}")  # at once: lines may mix
spans = any(one.way == "gloo" for one in anyaccel.distributed.paths())
say("spans" if spans else "shares")
"""
RIGHT = "[3.0] [0.0, 0.0, 0.0, 1.0, 1.0, 1.0] [1.0, 1.0, 1.0]\n"


@NEEDS_ROOT
def test_ranks_of_two_users_are_served_by_gloo(scripts: Scripts) -> None:
    scripts.start(
        """
        from anyaccel.distributed import shm
        shm._module()  # the other user may not read this one's cache
        if rank == 1: os.seteuid(65534)
        kept = dist.TCPStore("127.0.0.1", 29731, world, rank == 0, timeout=timedelta(seconds=30))
        dist.init_process_group("shm", store=kept, rank=rank, world_size=world, timeout=timedelta(seconds=30))
        """
        + WORKS.replace("\n", "\n        "),
        2,
    )
    assert scripts.outputs() == [RIGHT + "spans\n"] * 2


DENIED = {
    "ulimit -f": "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))",
    "memfd_create": "deny(memfd_create)",
    "Unix sockets": "deny_unix_sockets()",
    "Unix sockets of the second rank": "if rank == 1: deny_unix_sockets()",
}


@pytest.mark.parametrize("denied", DENIED)
def test_where_no_memory_can_be_shared_gloo_serves(scripts: Scripts, denied: str) -> None:
    who = int("second" in denied)
    scripts.start(
        DENY
        + f"""
from anyaccel.distributed import shm
shm._module()
{DENIED[denied]}
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    start()
if rank == {who}: assert any("share no memory: gloo serves them" in str(one.message) for one in said), said
"""
        + WORKS,
        2,
    )
    assert scripts.outputs() == [RIGHT + "spans\n"] * 2


def test_memory_is_shared_where_fallocate_is_denied(scripts: Scripts) -> None:
    scripts.start(DENY + "deny(fallocate)\nstart()\n" + WORKS, 2)
    assert scripts.outputs() == [RIGHT + "shares\n"] * 2


@NEEDS_ROOT
def test_memory_is_shared_where_the_boot_id_is_masked(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    arguments = "rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]\n"
    masked = "assert open('/proc/sys/kernel/random/boot_id').read() == ''\n"
    script.write_text(PROLOGUE + arguments + masked + "start()\n" + WORKS)
    ranks = " & ".join(f"{sys.executable} -W ignore {script} {rank} 2 {tmp_path}/store" for rank in range(2))
    shell = f"mount --bind /dev/null /proc/sys/kernel/random/boot_id && ({ranks} & wait)"
    finished = subprocess.run(
        ["unshare", "--mount", "sh", "-c", shell], capture_output=True, text=True, check=False, timeout=120
    )
    if "unshare failed" in finished.stderr or "permission denied" in finished.stderr.lower():
        pytest.skip(f"no mount namespaces here: {finished.stderr}")
    assert finished.stdout.count("shares") == 2, finished.stderr
    assert finished.stdout.count(RIGHT.strip()) == 2


def test_closing_another_descriptor_of_the_memory_shows_no_death(scripts: Scripts) -> None:
    scripts.start(
        """
        start(20)
        dist.barrier()
        if rank == 1:
            for one in os.listdir("/proc/self/fd"):
                try: target = os.readlink(f"/proc/self/fd/{one}")
                except OSError: continue
                if "anyaccel-shm" in target: os.close(os.dup(int(one)))
            time.sleep(0.5)  # in which rank 0 looks several times whether this one lives
        x = torch.ones(3)
        dist.all_reduce(x)
        say(x.tolist())
        """,
        2,
    )
    assert scripts.outputs() == ["[2.0, 2.0, 2.0]\n"] * 2


def test_a_death_is_seen_while_a_forked_child_lives(scripts: Scripts) -> None:
    scripts.start(
        """
        start(20)
        dist.barrier()
        if rank == 1:
            if os.fork() == 0:
                time.sleep(3)
                os._exit(0)
            say("ready")
            time.sleep(60)
        say("ready")
        say(error_of(lambda: dist.all_reduce(torch.ones(3))))
        """,
        2,
    )
    scripts.wait_for("ready")
    scripts.signal(1, signal.SIGKILL)
    (output,) = scripts.outputs(0)
    assert f"rank 1 (pid {scripts.pid(1)}) dead" in output


def test_idle_groups_give_their_memory_back(scripts: Scripts) -> None:
    scripts.start(
        """
        start(60)
        groups = [dist.new_group() for _ in range(6)]
        def held():
            inodes = {}
            for one in os.listdir("/proc/self/fd"):
                try:
                    target, facts = os.readlink(f"/proc/self/fd/{one}"), os.stat(f"/proc/self/fd/{one}")
                except OSError:
                    continue
                if "anyaccel-shm" in target: inodes[facts.st_ino] = facts.st_blocks * 512
            return sum(inodes.values()) / len(inodes)
        def use():
            for group in groups:
                x = torch.ones(100_000)
                dist.all_reduce(x, group=group)
                assert x.eq(2).all()
                if rank == 0: dist.send(x, 1, group=group)
                else: dist.recv(x, 0, group=group)
        use()
        used = held()
        until = time.monotonic() + 20
        while held() > 200_000 and time.monotonic() < until: time.sleep(0.1)
        idle = held()
        dist.barrier()
        use()
        say(used > 1_000_000, idle <= 200_000, held() > 1_000_000)
        """,
        2,
    )
    assert scripts.outputs() == ["True True True\n"] * 2


def test_more_groups_than_the_kernel_waits_for_at_once(scripts: Scripts) -> None:
    """Receives that nobody waits for on 140 groups: threads sleep, and each message arrives."""
    scripts.start(
        """
        start(60)
        groups = [dist.new_group() for _ in range(140)]
        got = [torch.zeros(1) for _ in groups]
        dist.barrier()
        if rank == 0:
            pending = [dist.irecv(one, 1, group=group) for one, group in zip(got, groups)]
            before = os.times()
            time.sleep(1)
            after = os.times()
            used = after.user + after.system - before.user - before.system
            dist.barrier()
            for work in pending: work.wait()
            say(used < 0.1, [one.item() for one in got] == [float(one) for one in range(140)])
        else:
            dist.barrier()
            for number, group in enumerate(groups): dist.send(torch.tensor([float(number)]), 0, group=group)
        """,
        2,
    )
    assert scripts.outputs()[0] == "True True\n"


def test_a_new_group_looks_for_no_binary(scripts: Scripts) -> None:
    scripts.start(
        """
        start(20)
        from anyaccel.distributed import shm
        shm.builder_class = None  # which finding one begins with
        x = torch.ones(2)
        dist.all_reduce(x, group=dist.new_group())
        say(x.tolist())
        """,
        2,
    )
    assert scripts.outputs() == ["[2.0, 2.0]\n"] * 2


def test_torchs_timeout_and_monitored_barrier_work_on_it(scripts: Scripts) -> None:
    scripts.start(
        """
        start(30)
        gloo = dist.new_group(backend="gloo")
        dist.monitored_barrier()
        dist.monitored_barrier(gloo)
        group = dist.new_group()
        set_timeout = getattr(dist, "set_timeout", dist.distributed_c10d._set_pg_timeout)  # torch 2.15 made it public
        set_timeout(timedelta(seconds=1), group)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            set_timeout(timedelta(seconds=20), gloo)
        other, zero = dist.new_group(), dist.new_group()
        if rank == 0:
            say(error_of(lambda: dist.all_reduce(torch.ones(2), group=group)))
            say(error_of(lambda: dist.monitored_barrier(other, timedelta(seconds=1), wait_all_ranks=True)))
            say(error_of(lambda: zero.monitored_barrier(timedelta(seconds=0))))
            dist.barrier(gloo)
        else:
            dist.barrier(gloo)
        """,
        3,
    )
    late, monitored, zero = scripts.outputs()[0].splitlines()
    assert "Timed out waiting 1000ms" in late
    assert "Rank 0 timed out in monitoredBarrier after 1000 ms" in monitored
    assert "Ranks 1, 2 failed to pass monitoredBarrier" in monitored
    assert "Rank 0 timed out in monitoredBarrier" in zero
    assert "Rank 1 failed to pass monitoredBarrier" in zero


def test_an_average_is_right_where_the_sum_is_none(scripts: Scripts) -> None:
    scripts.start(
        """
        for pretended in ("", "-" + str(rank)):
            os.environ["ANYACCEL_SHM_HOST"] = pretended
            store += "x"
            start(20)
            small = torch.full((5,), 100, dtype=torch.int8)
            dist.all_reduce(small, dist.ReduceOp.AVG)
            out = torch.zeros(2, dtype=torch.uint8)
            dist.reduce_scatter_tensor(out, torch.full((4,), 250, dtype=torch.uint8), dist.ReduceOp.AVG)
            say(small.tolist(), out.tolist())
            dist.destroy_process_group()
        """,
        2,
    )
    assert scripts.outputs() == ["[100, 100, 100, 100, 100] [250, 250]\n" * 2] * 2
