"""How a program ends: what it has issued is done, and its processes exit as they should, whatever still runs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from ..programs import Program, program_server
from .ranks import PROLOGUE

if TYPE_CHECKING:
    from pathlib import Path

    from .ranks import Scripts

HOOKED = """
import atexit
def clean_up():
    dist.barrier()
    future = dist.all_reduce(torch.ones(50_000), async_op=True).get_future().then(lambda f: f.value()[0])
    assert future.wait()[0] == world
    dist.destroy_process_group()
atexit.register(clean_up)
"""
LAST_LINES = {
    "callbacks that were waited for": """
        futures = [dist.all_reduce(torch.ones(50_000), async_op=True).get_future().then(lambda f: 1) for _ in range(20)]
        for future in futures: future.wait()
    """,
    "callbacks that nobody waits for, and destroy": """
        for _ in range(50):
            future = dist.all_reduce(torch.ones(50_000), async_op=True).get_future().then(lambda f: sum(range(20_000)))
        dist.barrier()
        dist.destroy_process_group()
    """,
    "operations that nobody waits for": """
        for _ in range(30): dist.all_reduce(torch.ones(200_000), async_op=True)
    """,
    "an operation that cannot end": """
        if rank == 0: work = dist.irecv(torch.ones(3), 1)
        else: time.sleep(0.3)
    """,
    "messages that nobody waits for": """
        for tag in range(20):
            work = dist.irecv(torch.ones(500), 1 - rank, tag=tag)
            dist.isend(torch.ones(500), 1 - rank, tag=tag)
    """,
    "a callback that never returns": """
        never = threading.Event()
        def wait(future):
            if threading.current_thread() is not threading.main_thread(): never.wait(600)
        if rank == 0: time.sleep(0.3)
        future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(wait)
        dist.barrier()
    """,
    "children that were forked": """
        import signal
        pending = dist.irecv(torch.ones(3), 1 - rank)
        for end in (dist.destroy_process_group, dist.distributed_c10d._abort_process_group, sys.exit):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                end()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, end
        dist.barrier()
    """,
    "children that wait for what their parent has issued": """
        import signal
        if rank == 0:
            for work in (dist.all_reduce(torch.ones(9), async_op=True), dist.irecv(torch.ones(3), 1), dist.irecv(torch.ones(3))):
                child = os.fork()
                if child == 0:
                    signal.alarm(20)
                    os._exit("was forked" not in error_of(work.wait))
                assert os.waitpid(child, 0)[1] == 0, work
            dist.send(torch.ones(1), 1)
        else:
            dist.recv(torch.ones(1), 0)
            dist.all_reduce(torch.ones(9))
    """,
    "threads that wait for a message": """
        def wait_in_thread():
            dist.recv(torch.ones(3), 1 - rank)
        def wait_for_collective():
            dist.all_reduce(torch.ones(3))
        threading.Thread(target=wait_in_thread, daemon=True).start()
        if rank == 0: threading.Thread(target=wait_for_collective, daemon=True).start()
        time.sleep(0.5 * (1 + rank))
    """,
    "an object that is deleted when Python ends": """
        class Last:
            def __del__(self): error_of(lambda: dist.all_reduce(torch.ones(2)))
        sys.modules["last"] = Last()
    """,
    "a hook that was registered before the group": "",
    "a group that is destroyed by a hook": """
        import atexit
        atexit.register(dist.destroy_process_group)
        dist.all_reduce(torch.ones(50_000), async_op=True)
    """,
}
"""The last lines of programs. Python ends after them, while threads of the backend may hold tensors and callbacks."""


_ON_TWO_HOSTS = (
    "children that were forked",
    "children that wait for what their parent has issued",
    "threads that wait for a message",
    "an object that is deleted when Python ends",
    "callbacks that nobody waits for, and destroy",
    "an operation that cannot end",
    "a hook that was registered before the group",
    "a group that is destroyed by a hook",
)


def _programs(name: str, hosts: str, folder: Path) -> list[Program]:
    """Return the program of each rank."""
    hooked = HOOKED if "before the group" in name else ""
    script = f"{PROLOGUE}\nrank, world, store = int(sys.argv[1]), 2, sys.argv[2]\n{hooked}\nstart()\n"
    script += f"dist.all_reduce(torch.ones(3))\n{textwrap.dedent(LAST_LINES[name])}"
    return [
        Program(
            code=script,
            arguments=[str(rank), str(folder / "store")],
            environment={**os.environ, "ANYACCEL_SHM_HOST": hosts[rank], "GLOO_SOCKET_IFNAME": "lo"},
            folder=str(folder),
            errors=str(folder / f"errors of {rank}"),
            ends_as_python=True,
        )
        for rank in range(2)
    ]


@pytest.mark.parametrize(
    ("name", "hosts"),
    [
        *((name, "aa") for name in LAST_LINES),
        *(pytest.param(name, "ab", marks=[] if name in _ON_TWO_HOSTS else pytest.mark.slow) for name in LAST_LINES),
    ],
)
def test_a_process_exits_with_zero(tmp_path: Path, name: str, hosts: str) -> None:
    """In processes that end as programs do; those of the other tests end without Python's own end."""
    statuses = program_server().statuses(_programs(name, hosts, tmp_path), 60)
    assert statuses == [0, 0], [(tmp_path / f"errors of {rank}").read_text() for rank in range(2)]


@pytest.mark.parametrize("hosts", ["aa", pytest.param("ab", marks=pytest.mark.slow)])
def test_a_process_that_is_no_fork_exits_with_zero(tmp_path: Path, hosts: str) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program.code, *program.arguments],
            env=program.environment, stderr=subprocess.PIPE, text=True,
        )
        for program in _programs("operations that nobody waits for", hosts, tmp_path)
    ]  # fmt: skip
    said = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said


@pytest.mark.parametrize("hosts", ["aa", "aab", "abc"])
def test_what_was_issued_is_done_before_a_group_is_destroyed(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        """
        start()
        tensors = [torch.ones(100_000) for _ in range(50)]
        works = [dist.all_reduce(one, async_op=True) for one in tensors]
        if rank == 1: time.sleep(0.5)
        dist.destroy_process_group()
        say([one.unique().tolist() for one in tensors] == [[world]] * 50, all(work.wait() for work in works))
        """,
        len(hosts),
        hosts,
    )
    assert scripts.outputs() == ["True True\n"] * len(hosts)


def test_a_rank_that_leaves_without_an_operation_ends_it_for_the_others(scripts: Scripts) -> None:
    """Also where the others only destroy the group: they do not wait for its timeout."""
    scripts.start(
        """
        start(60)
        if rank == 0: work = dist.all_reduce(torch.ones(3), async_op=True)
        else: time.sleep(0.5)
        began = time.monotonic()
        dist.destroy_process_group()
        say(time.monotonic() - began < 20, rank == 1 or "leaving the group" in error_of(work.wait))
        """,
        2,
    )
    assert scripts.outputs() == ["True True\n"] * 2
