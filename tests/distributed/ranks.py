"""Processes that are the ranks of a group; they are started once and run given functions."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import tempfile
import textwrap
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import anyaccel.distributed  # noqa: F401  # registers "shm"

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

_TIMEOUT = timedelta(seconds=60)
_GLOO_SAYS = re.compile(r"(?m)^\[Gloo\] Rank .*\n")
"""What gloo prints to standard output in torch 2.10."""


PROLOGUE = """
import os, sys, time, threading, warnings
from datetime import timedelta
import torch, torch.distributed as dist
import anyaccel.distributed
torch.set_num_threads(1)

def start(seconds=30, backend="shm"):
    dist.init_process_group(backend, store=dist.FileStore(store, world), rank=rank, world_size=world,
                            timeout=timedelta(seconds=seconds))

def error_of(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return "no error"

def tell_others():
    open(store + ".told", "w").close()

def stay_until_told():  # a rank that leaves first would be what the other hears of
    while not os.path.exists(store + ".told"): time.sleep(0.05)

def say(*words):
    print(*words, flush=True)
"""


_FROZEN = f"{__package__}.frozen"


def join(rank: int, world: int, store: str, backend: str = "shm", timeout: timedelta = _TIMEOUT) -> None:
    """Make this process a rank of the default group."""
    torch.set_num_threads(1)
    dist.init_process_group(backend, store=dist.FileStore(store, world), rank=rank, world_size=world, timeout=timeout)


def _context() -> Any:
    """Return a context for processes: forks of a process that has imported torch and has no group, which start fast.

    It has also imported what DDP and torch's optimizers import at first use.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "torch.distributed.fsdp", "anyaccel.distributed", _FROZEN])
    return context


class Scripts:
    """Processes that each run a script as one rank, and can be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[Any] = []

    def start(self, script: str, world: int, hosts: str = "", **env: str) -> None:
        """Start the ranks; the script finds its ``rank``, ``world`` and ``store`` as variables.

        Args:
            script: the program of each rank.
            world: how many ranks there are.
            hosts: a letter for each rank, of its pretended host; empty for one host.
            env: more environment variables.
        """
        text = PROLOGUE + textwrap.dedent(script)
        for rank in range(world):
            names = {"rank": rank, "world": world, "store": f"{self._folder}/store"}
            process = _context().Process(
                target=_run_script, args=(text, names, str(self._folder), env | _on_host(hosts[rank : rank + 1]))
            )
            process.start()
            self._processes.append(process)

    def pid(self, rank: int) -> int:
        return int(self._processes[rank].pid)

    def signal(self, rank: int, number: int) -> None:
        os.kill(self.pid(rank), number)

    def is_running(self, *ranks: int) -> bool:
        """Return whether all of these ranks still run."""
        return all(self._processes[rank].exitcode is None for rank in ranks)

    def touch(self, suffix: str) -> None:
        """Create a file beside the store, for which scripts can look."""
        Path(f"{self._folder}/store{suffix}").touch()

    def wait_for(self, word: str, *ranks: int) -> None:
        """Wait until the given ranks, or all of them, have printed a word."""
        until = time.monotonic() + 60
        for rank in ranks or range(len(self._processes)):
            while word not in self._text(rank, "out"):
                assert self._processes[rank].exitcode is None, self._text(rank, "err")
                assert time.monotonic() < until, f"no {word!r} from rank {rank}"
                time.sleep(0.01)

    def outputs(self, *ranks: int) -> list[str]:
        """Wait until the given ranks, or all of them, have exited successfully, and return their output."""
        chosen = ranks or range(len(self._processes))
        for rank in chosen:
            self._processes[rank].join(90)
        errors = [self._text(rank, "err") for rank in chosen]
        assert all(self._processes[rank].exitcode == 0 for rank in chosen), errors
        return [_GLOO_SAYS.sub("", self._text(rank, "out")) for rank in chosen]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def _text(self, rank: int, kind: str) -> str:
        file = self._folder / f"{kind}{rank}"
        return file.read_text() if file.exists() else ""


def _on_host(name: str) -> dict[str, str]:
    return {"ANYACCEL_SHM_HOST": name} if name else {}


def _run_script(text: str, names: dict[str, Any], folder: str, env: dict[str, str]) -> None:
    os.environ.update(env)
    for descriptor, kind in ((1, "out"), (2, "err")):
        file = os.open(f"{folder}/{kind}{names['rank']}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  # the test runner's stdout has another descriptor
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    exec(compile(text, "<rank>", "exec"), {"__name__": "__main__", **names})  # noqa: S102
    sys.stdout.flush()


class Ranks:
    """One process per rank; each has the default group on shm, and a group on gloo for comparison."""

    def __init__(self, world: int, hosts: str = "") -> None:
        """``hosts`` has a letter for each rank: those of another letter are as on another host."""
        self.world = world
        self._folder = tempfile.TemporaryDirectory()
        context = _context()
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(world):
            here, there = context.Pipe()
            process = context.Process(
                target=_serve, args=(there, rank, world, f"{self._folder.name}/store", hosts[rank : rank + 1])
            )
            process.start()
            self._pipes.append(here)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run a function of a module on every rank, and return the results; raise the first failing rank's exception."""
        for pipe in self._pipes:
            pipe.send((function.__module__, function.__qualname__, arguments))
        answers = [pipe.recv() if pipe.poll(240) else (None, "no answer within 240 s") for pipe in self._pipes]
        failures = [f"rank {rank}:\n{error}" for rank, (_, error) in enumerate(answers) if error]
        assert not failures, "\n".join(failures)
        return [result for result, _ in answers]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(20)
            process.kill()
        self._folder.cleanup()


def gloo() -> dist.ProcessGroup:
    """The group of the same ranks on gloo, in a process of :class:`Ranks`."""
    assert _gloo is not None
    return _gloo


_gloo: dist.ProcessGroup | None = None


def _serve(pipe: Connection, rank: int, world: int, store: str, host: str) -> None:
    global _gloo
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), ANYACCEL_SHM_HOST=host)
    os.chdir(Path(store).parent)
    join(rank, world, store)
    _gloo = dist.new_group(backend="gloo", timeout=_TIMEOUT)
    while (asked := pipe.recv()) is not None:
        module, name, arguments = asked
        try:
            answer = (getattr(importlib.import_module(module), name)(*arguments), "")
        except BaseException:
            answer = (None, traceback.format_exc())
        pipe.send(answer)
    dist.destroy_process_group()
