"""Runs torch's own cases on an accelerator's device, in processes that may hang or crash."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..accelerator.errors import AnyaccelError
from .outcome import Outcome, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import IO

__all__ = ["TorchTest", "TorchTestsError", "check_members", "run_torch_tests"]

_START_SECONDS = (
    600  # importing torch's cases takes 10 s, and more on a busy machine; a vendor's device may start slowly
)

_WORKER = ("-W", "ignore", "-X", "faulthandler", "-m", "anyaccel.testing.torch_worker")

_SHOWN_LINES = 3
"""Of what a process printed last."""


class TorchTestsError(AnyaccelError, RuntimeError):
    """Torch's tests could not be started on a device."""

    exit_code = 2


@dataclass(frozen=True)
class TorchTest:
    """The result of one of torch's tests on a device.

    Attributes:
        name: the test's name, such as ``test_compare_cpu_add_simdev_float32``.
        outcome: ``ok``, ``wrong``, ``unsupported`` (the device has no such kernel), ``crashed``, ``timed out`` or ``skipped``.
        why: what was wrong, or why it was skipped.
        seconds: how long it ran.
    """

    name: str
    outcome: str
    why: str = ""
    seconds: float = 0.0


def run_torch_tests(
    target: str,
    *,
    pattern: str = "*",
    dtypes: Sequence[str] = (),
    limit_seconds: float = 60.0,
    jobs: int = 1,
    progress: Callable[[TorchTest, int], None] = lambda _test, _count: None,
) -> list[TorchTest]:
    """Run torch's cases (``OpInfo`` and ``ModuleInfo``) on the device of an accelerator, and compare with the CPU.

    Args:
        target: the accelerator, as ``package.module:Class``.
        pattern: the tests to run, as a shell pattern such as ``test_compare_cpu_*``.
        dtypes: the names of the dtypes to test ops with; empty: one for each op, float32 where the op takes it.
        limit_seconds: how long one test may run.
        jobs: how many processes run tests at a time.
        progress: called after each test with its result and the number of tests, from several threads in turn.

    Returns:
        The result of every test.

    Raises:
        TorchTestsError: when no test can be started: the accelerator cannot be created, torch's framework does not know its
            device, packages are missing, or no test matches.
    """
    lock, done = threading.Lock(), threading.Event()

    def tell(test: TorchTest, count: int) -> None:
        with lock:
            progress(test, count)

    shares = [_Share(target, (share, jobs), pattern, tuple(dtypes), limit_seconds, done, tell) for share in range(jobs)]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            results = [test for share in [pool.submit(share.run) for share in shares] for test in share.result()]
        except BaseException:
            done.set()  # Ctrl-C, or a share that cannot start: the other processes end, too
            raise
    if not results:
        msg = (
            f"testing '{target}' failed: no test matches {pattern!r}. Fix: use a pattern such as 'test_compare_cpu_*', "
            "or a device that torch's test framework knows: cpu, cuda, xpu, mps, or the one on its PrivateUse1 key."
        )
        raise TorchTestsError(msg)
    return sorted(results, key=lambda test: test.name)


def check_members(target: str, *, limit_seconds: float = 60.0) -> list[Result]:
    """Run every check of the contract, each in a process that it may crash or hang; the next check then gets a new one.

    Args:
        target: the accelerator, as ``package.module:Class``.
        limit_seconds: how long one check may run.

    Returns:
        How each member fared, in the contract's order.

    Raises:
        TorchTestsError: when no check can be started.
    """
    share = _Share(
        target, (0, 1), "*", (), limit_seconds, threading.Event(), lambda _test, _count: None, checks_members=True
    )
    return [Result(test.name, Outcome(test.outcome), test.why) for test in share.run()]


@dataclass
class _Share:
    """Every so many of the tests, run in one process after another: a new one after each test that crashed or hung."""

    target: str
    share: tuple[int, int]
    pattern: str
    dtypes: tuple[str, ...]
    limit_seconds: float
    stopped: threading.Event
    tell: Callable[[TorchTest, int], None]
    checks_members: bool = False
    names: list[str] = field(default_factory=list)
    has_told: bool = False
    results: list[TorchTest] = field(default_factory=list)

    def run(self) -> list[TorchTest]:
        self._run_process()
        while len(self.results) < len(self.names) and not self.stopped.is_set():
            self._run_process()
        return self.results

    def _run_process(self) -> None:
        """Run tests from the first one without a result on, until the process ends or one hangs."""
        reading, writing = os.pipe()
        asked = {
            "target": self.target, "share": self.share, "pattern": self.pattern, "dtypes": self.dtypes,
            "first": len(self.results), "pipe": writing, "members": self.checks_members,
        }  # fmt: skip
        command = [sys.executable, *_WORKER, json.dumps(asked)]
        with tempfile.TemporaryFile() as output, os.fdopen(reading, "rb") as pipe:
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[writing],
                start_new_session=True,
            )
            os.close(writing)
            running, hung, ends_itself = None, False, False
            try:
                for event in self._events(pipe, process):
                    running = self._note(event, running)
                    hung = event is None
                ends_itself = not hung and not self.stopped.is_set()
            finally:
                if not ends_itself:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
            if self.stopped.is_set():
                return
            if running is not None:
                outcome = "timed out" if hung else "crashed"
                why = f"it ran longer than {self.limit_seconds:g} s" if hung else f"{_ended(status)}; {_tail(output)}"
                self._add(TorchTest(running, outcome, why))
            elif len(self.results) < len(self.names) or not self.has_told:
                msg = (
                    f"testing '{self.target}' failed: {_ended(status)} before a test began: {_tail(output)}. "
                    "Fix: make importing the package and `torch.zeros(1, device=...)` work in a new process."
                )
                raise TorchTestsError(msg)

    def _note(self, event: dict[str, Any] | None, running: str | None) -> str | None:
        """Keep what an event says; return the name of the test that runs."""
        if event is None:
            return running
        if "error" in event:
            raise TorchTestsError(event["error"])  # a whole message of the worker's
        if "tests" in event:
            self.names, self.has_told = event["tests"], True
            return None
        if "begins" in event:
            return str(event["begins"])
        self._add(TorchTest(event["ends"], event["outcome"], event["why"], event["seconds"]))
        return None

    def _add(self, test: TorchTest) -> None:
        self.results.append(test)
        self.tell(test, len(self.names) * self.share[1])

    def _events(self, pipe: IO[bytes], process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any] | None]:
        """Yield what a process writes until it ends; None, and nothing more, when it is silent for too long.

        A process that it started may keep the pipe open.
        """
        buffered, silent_seconds, limit = b"", 0.0, float(_START_SECONDS)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not self.stopped.is_set():
                has_ended = process.poll() is not None  # before the look, which then finds all that it has written
                if not selector.select(timeout=0 if has_ended else 0.5):
                    if has_ended:
                        return
                    silent_seconds += 0.5
                    if silent_seconds >= limit:
                        yield None
                        return
                    continue
                silent_seconds, chunk = 0.0, os.read(pipe.fileno(), 1 << 16)
                if not chunk:
                    return
                *lines, buffered = (buffered + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    limit = self.limit_seconds if "begins" in event else _START_SECONDS
                    yield event


def _ended(status: int) -> str:
    if status >= 0:
        return f"the process exited with {status}"
    return f"the process was killed by {signal.Signals(-status).name}"


def _tail(output: IO[bytes]) -> str:
    """Return what a process printed last, and the calls that Python's fault handler names, the innermost first."""
    output.seek(0)
    said, is_fault, fault = output.read().decode(errors="replace").partition("Fatal Python error: ")
    printed = said.strip().splitlines()[-_SHOWN_LINES:]
    _, _, calls = fault.partition("Current thread ")
    printed += itertools.takewhile(bool, calls.splitlines()[1 : 1 + _SHOWN_LINES]) if is_fault else []
    return " / ".join(line.strip() for line in printed) or "it printed nothing"
