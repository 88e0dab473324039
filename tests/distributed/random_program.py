"""Random operations through torch.distributed, drawn from a seed for all ranks, with one right outcome for each."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import anyaccel.distributed

from .ranks import join

COLLECTIVES = (
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor",
    "all_to_all_single", "gather", "scatter", "barrier",
)  # fmt: skip
MESSAGES = ("ring", "from_any", "monitored")
DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.int16)
REDUCTIONS = (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN)
SIZES = (1, 5, 70, 1_000, 40_000, 200_000)
ENDINGS = ("killed", "killed inside", "too late")  # the last steps' faults: none of them leaves the group usable
HOSTS = {2: ("", "", "ab"), 3: ("", "", "aab", "abc"), 4: ("", "aabb", "abab", "aaab"), 5: ("", "aabbb")}

_SECONDS_TO_HEAR = 30
"""Half of the timeout of :func:`join`: what a rank waits whom nobody tells that another was killed, before an operation."""
Check = Callable[[], None]


@dataclass(frozen=True)
class Step:
    """One operation, and what goes wrong on one rank."""

    operation: str
    size: int
    dtype: torch.dtype
    root: int
    reduction: Any
    is_async: bool
    fault: str
    faulty: int
    delay: float


class Program:
    """What the ranks of a group do: the same for every process that has the seed."""

    def __init__(self, seed: int) -> None:
        drawn = random.Random(seed)  # noqa: S311
        self.seed = seed
        self.world = drawn.choice((2, 2, 3, 3, 4, 5))
        self.hosts = drawn.choice(HOSTS[self.world])
        self.is_on_one_core = drawn.random() < 0.25
        self.alarm = drawn.choice((0, 0, 0.002, 0.02))
        self.ending = drawn.choice(("", *ENDINGS))
        self.victim = drawn.randrange(self.world)
        self.steps = [self._step(drawn) for _ in range(drawn.randrange(5, 60))]

    def survivors(self) -> list[int]:
        return [rank for rank in range(self.world) if rank != self.victim or not self.ending.startswith("killed")]

    def _step(self, drawn: random.Random) -> Step:
        operation = drawn.choice(COLLECTIVES + MESSAGES)
        faults = ("", "", "", "late", "refused", "differs") if operation in COLLECTIVES else ("", "late")
        fault = drawn.choice(faults)
        return Step(
            operation,
            drawn.choice(SIZES) if drawn.random() < 0.5 else drawn.randrange(1, 100),
            drawn.choice(DTYPES),
            drawn.randrange(self.world),
            drawn.choice(REDUCTIONS),
            operation in COLLECTIVES and fault in ("", "late") and drawn.random() < 0.3,
            fault,
            drawn.randrange(self.world),
            drawn.choice((0.0, 0.0005, 0.01, 0.12)),
        )

    def described(self) -> str:
        return (
            f"seed {self.seed}: {self.world} ranks on {self.hosts or 'one host'}, {len(self.steps)} steps, "
            f"then {self.ending or 'nothing'} (rank {self.victim}); one core: {self.is_on_one_core}, alarm {self.alarm}"
        )


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return "no error"


class Player:
    """One rank of a program."""

    def __init__(self, program: Program, rank: int) -> None:
        self.program, self.rank, self.world = program, rank, program.world
        self.pending: list[tuple[dist.Work, Check]] = []

    def values(self, number: int, rank: int, step: Step) -> torch.Tensor:
        """Return what a rank contributes to a step: a part for each rank, of small numbers, whose sums are exact."""
        made = torch.Generator().manual_seed(self.program.seed * 1_000_003 + number * 101 + rank)
        return torch.randint(0, 8, (self.world * step.size,), generator=made).to(step.dtype)

    def begin(self, number: int, step: Step) -> tuple[list[dist.Work], Check]:
        """Call the operation; the works that are returned are still to be waited for, and then the check holds."""
        size, rank, world, root = step.size, self.rank, self.world, step.root
        full = [self.values(number, one, step) for one in range(world)]
        first = [one[:size] for one in full]
        x, parts, results = first[rank].clone(), [torch.zeros_like(one) for one in first], torch.zeros_like(full[0])
        mine = slice(rank * size, (rank + 1) * size)
        stacked = torch.stack(full)
        reduced = {
            dist.ReduceOp.SUM: stacked.sum(0, dtype=step.dtype),
            dist.ReduceOp.MAX: stacked.amax(0),
            dist.ReduceOp.MIN: stacked.amin(0),
        }[step.reduction]
        how = {"async_op": step.is_async}
        if step.operation == "all_reduce":
            work = dist.all_reduce(x, step.reduction, **how)
            found, expected = x, reduced[:size]
        elif step.operation == "reduce":
            work = dist.reduce(x, root, step.reduction, **how)
            found, expected = x, reduced[:size] if rank == root else x
        elif step.operation == "broadcast":
            work = dist.broadcast(x, root, **how)
            found, expected = x, first[root]
        elif step.operation == "all_gather":
            work = dist.all_gather(parts, x, **how)
            found, expected = parts, first
        elif step.operation == "all_gather_into_tensor":
            work = dist.all_gather_into_tensor(results, x, **how)
            found, expected = results, torch.cat(first)
        elif step.operation == "reduce_scatter_tensor":
            work = dist.reduce_scatter_tensor(x, full[rank], step.reduction, **how)
            found, expected = x, reduced[mine]
        elif step.operation == "all_to_all_single":
            work = dist.all_to_all_single(results, full[rank], **how)
            found, expected = results, torch.cat([one[mine] for one in full])
        elif step.operation == "gather":
            work = dist.gather(x, parts if rank == root else None, root, **how)
            found, expected = parts, first if rank == root else parts
        elif step.operation == "scatter":
            work = dist.scatter(x, list(full[root].split(size)) if rank == root else None, root, **how)
            found, expected = x, full[root][mine]
        elif step.operation == "barrier":
            work, found, expected = dist.barrier(**how), x, x
        elif step.operation in ("ring", "monitored"):
            before, tag = (rank - 1) % world, number if step.operation == "ring" else number % 3
            receive = dist.irecv(parts[0], before, tag=tag)
            send = dist.isend(x, (rank + 1) % world, tag=tag)
            if step.operation == "monitored":  # while messages of low tags are under way, which gloo takes for its own
                anyaccel.distributed.monitored_barrier()
            return [receive, send], lambda: self.same(step, parts[0], first[before])
        else:
            return [], self.receive_from_any(number, step, first)
        return [work] if work is not None else [], lambda: self.same(step, found, expected)

    def receive_from_any(self, number: int, step: Step, first: list[torch.Tensor]) -> Check:
        if self.rank != step.root:
            dist.send(first[self.rank], step.root, tag=number)
            return lambda: None
        come: dict[int, torch.Tensor] = {}
        for _ in range(self.world - 1):
            place = torch.zeros_like(first[0])
            source = dist.recv(place, tag=number)
            assert source not in come, (step, source, come.keys())
            come[source] = place

        def check() -> None:
            for source, place in come.items():
                self.same(step, place, first[source])

        return check

    def same(self, step: Step, found: Any, expected: Any) -> None:
        is_same = all(map(torch.equal, found, expected)) if isinstance(found, list) else torch.equal(found, expected)
        assert is_same, (step, found, expected)

    def finish_pending(self) -> None:
        pending, self.pending = self.pending, []
        for work, check in pending if len(pending) % 2 else reversed(pending):
            work.wait()
            check()

    def take(self, number: int, step: Step) -> None:
        """Do a step whose outcome is certain."""
        if step.fault == "differs":
            self.finish_pending()
            return self.differ(number, step)
        if step.fault == "refused":
            return self.refuse(number, step)
        if step.fault == "late" and self.rank == step.faulty:
            time.sleep(step.delay)
        works, check = self.begin(number, step)
        if step.is_async:
            self.pending += [(work, check) for work in works]
            if len(self.pending) > 4:
                self.finish_pending()
            return None
        for work in works:
            work.wait()
        return check()

    def differ(self, number: int, step: Step) -> None:
        """One rank passes what is not what the others pass: all know, and can go on."""
        if self.rank == step.faulty:
            said = error_of(lambda: dist.all_reduce(torch.ones(step.size + 1, dtype=torch.complex64)))
        else:
            said = error_of(lambda: self.begin(number, step))
        assert "Fix: " in said, (step, said)

    def refuse(self, number: int, step: Step) -> None:
        """One rank or all pass what is refused there, once or twice: the others are told, whatever that rank does then."""
        drawn = random.Random(self.program.seed * 1_000 + number)  # noqa: S311
        if drawn.random() < 0.5:
            self.finish_pending()
        times, are_all_wrong, is_async = drawn.choice((1, 2)), drawn.random() < 0.2, drawn.random() < 0.3
        for _ in range(times):
            if self.rank == step.faulty or are_all_wrong:
                said, expected = error_of(lambda: dist.all_reduce(torch.ones(1).expand(3))), "failed: got "
            else:
                said, expected = (
                    error_of(lambda: self.play_alone(number, replace(step, is_async=is_async))),
                    "refusal by",
                )
                assert f"rank {step.faulty}" in said, (step, said)
            assert expected in said, (step, said)
            assert "elements share memory" in said, (step, said)
        told = drawn.choice([rank for rank in range(self.world) if rank != step.faulty])
        if step is self.program.steps[-1]:  # a rank that is killed now tells nobody
            dist.barrier()
        if drawn.random() < 0.3 or are_all_wrong:
            return
        if self.rank == step.faulty:
            dist.recv(torch.zeros(1), told, tag=number)
        elif self.rank == told:
            dist.send(torch.ones(1), step.faulty, tag=number)

    def play_alone(self, number: int, step: Step) -> None:
        for work in self.begin(number, step)[0]:
            work.wait()

    def end(self) -> None:
        """Leave, or see another rank fail: what follows is right or raises, and the last raises."""
        ending, is_victim = self.program.ending, self.rank == self.program.victim
        if not ending:
            dist.barrier()
            dist.destroy_process_group()
            return
        if ending == "too late":
            dist.barrier()
            anyaccel.distributed.set_timeout(timedelta(seconds=1))
        if is_victim and ending == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if is_victim and ending == "killed inside":
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the process without its knowing
            signal.setitimer(signal.ITIMER_REAL, random.Random(self.program.seed).choice((0.0001, 0.001, 0.02)))  # noqa: S311
        if is_victim and ending == "too late":
            time.sleep(6)  # the others may begin late, too
        begun = time.monotonic()
        for number, step in enumerate(self.program.steps, len(self.program.steps)):
            if step.operation not in COLLECTIVES:
                continue
            try:
                works, check = self.begin(number, step)
                for work in works:
                    work.wait()
                check()
            except RuntimeError:
                break
        if is_victim and ending == "killed inside":
            time.sleep(60)
        for _ in range(2):
            try:
                dist.barrier()
            except RuntimeError:
                continue
            raise AssertionError("a barrier without the rank that failed")
        heard = time.monotonic() - begun
        assert ending != "killed" or heard < _SECONDS_TO_HEAR, f"heard of a killed rank after {heard:.0f} s"


def play(rank: int, store: str, seed: int) -> None:
    """Be one rank of a program; one that hangs says where."""
    faulthandler.dump_traceback_later(85, exit=True)
    program = Program(seed)
    os.environ["ANYACCEL_SHM_HOST"] = program.hosts[rank : rank + 1]
    if program.is_on_one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore", FutureWarning)  # newer torches rename two collectives
    join(rank, program.world, store)
    player = Player(program, rank)
    if program.alarm:
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, program.alarm, program.alarm)
    for number, step in enumerate(program.steps):
        print(number, step, flush=True)
        player.take(number, step)
    player.finish_pending()
    print("ending", flush=True)
    player.end()
    print("done", flush=True)
