"""Starts programs that end with this process, while no thread forks.

A program is started by ``run_command.py``, directly or by ninja, and has a lifeline: a socket whose other end only this
process holds. When the socket closes, because the work is done or cancelled, or because this process died in any way, the
program and its children are ended.

A child forked during a start would hold copies of the pipes that the starter waits for, as long as the child lives.
If the child then waited for the same build, both would wait forever.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import selectors
import shlex
import socket
import subprocess
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .environment import LIFELINE_FOR_COMMANDS, environment_of_tools
from .interpreter import find_python
from .progress import Rhythm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["RUNNER", "Message", "ProgramTimeout", "Started", "run", "started"]

_logger = logging.getLogger(__name__)
RUNNER = Path(__file__).with_name("run_command.py")
_TICK_SECONDS = 0.5
_SHORT_SECONDS = 0.01
_LATE_SECONDS = 1.0  # for output of a program's background children; a server left behind never closes its output
_END_SECONDS = 10.0
_MESSAGE_BYTES = 1 << 16

_starting = threading.RLock()
_lifelines: weakref.WeakSet[socket.socket] = weakref.WeakSet()


@dataclass(frozen=True)
class Message:
    """A message from the runner of a command.

    Attributes:
        head: the number of the command, and ``pid``, ``said`` or ``ended``, as written by ``run_command.py``.
        content: the command's output, for ``said``.
    """

    head: dict[str, Any]
    content: bytes


class ProgramTimeout(subprocess.TimeoutExpired):
    """A program exceeded its time limit, and was ended.

    Attributes:
        pid: its process id.
    """

    def __init__(self, command: list[str], seconds: float, pid: int) -> None:
        super().__init__(command, seconds)
        self.pid = pid


class Started:
    """A started program, and the lifeline of all commands that it runs.

    Attributes:
        process: the process.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], lifeline: socket.socket, hear: Callable[[Message], None]
    ) -> None:
        self.process = process
        self._lifeline = lifeline
        self._hear = hear

    def wait(self, tick: Callable[[], None], timeout: float | None = None) -> tuple[bytes, bytes]:
        """Return the program's output after it has ended.

        Args:
            tick: called about twice per second; may raise, to cancel.
            timeout: the time limit in seconds.

        Raises:
            TimeoutError: when the time limit is exceeded.
        """
        began = time.monotonic()
        next_tick = began + _TICK_SECONDS
        given_up = float("inf")
        said: dict[Any, bytearray] = {self.process.stdout: bytearray(), self.process.stderr: bytearray()}
        with selectors.DefaultSelector() as selector:
            for stream in filter(None, (self._lifeline, *said)):
                selector.register(stream, selectors.EVENT_READ)
            while (now := time.monotonic()) < given_up:
                if self.process.poll() is not None:
                    if not any(stream in selector.get_map() for stream in filter(None, said)):
                        break
                    given_up = min(given_up, now + _LATE_SECONDS)
                elif timeout is not None and now - began > timeout:
                    raise TimeoutError
                elif now >= next_tick:
                    next_tick = now + _TICK_SECONDS
                    tick()
                for key, _ in selector.select(_TICK_SECONDS if len(selector.get_map()) > 0 else _SHORT_SECONDS):
                    if key.fileobj is self._lifeline:
                        is_open = self.hear_one()
                    else:
                        content = os.read(key.fd, _MESSAGE_BYTES)
                        said[key.fileobj] += content
                        is_open = bool(content)
                    if not is_open:
                        selector.unregister(key.fileobj)
        return bytes(said[self.process.stdout]), bytes(said.get(self.process.stderr, b""))

    def hear_one(self) -> bool:
        """Read one message from the lifeline, and return whether more may come."""
        head, _, content = self._lifeline.recv(_MESSAGE_BYTES).partition(b"\n")
        if head:
            self._hear(Message(json.loads(head), content))
        return bool(head)

    def end(self) -> None:
        """End everything that still runs, and wait until every command is gone; the last messages are read."""
        with contextlib.suppress(OSError):  # a child forked meanwhile has closed it
            self._lifeline.shutdown(socket.SHUT_WR)
            if self.process.poll() is None:
                self.process.terminate()  # ninja then starts no more commands
            self._lifeline.settimeout(_END_SECONDS)
            while self.hear_one():
                pass
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def started(
    command: Callable[[str], Sequence[str]],
    environment: Mapping[str, str],
    hear: Callable[[Message], None],
    **options: Any,
) -> Iterator[Started]:
    """Start a program that runs commands through ``run_command.py``, and end all of them on exit.

    Args:
        command: returns the program and its arguments, given the number of the lifeline's descriptor.
        environment: the program's environment; the lifeline is added to it.
        hear: called with every message about a command.
        **options: options of ``subprocess.Popen``.

    Raises:
        OSError: when it cannot be started.
    """
    with _starting:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _lifelines.add(ours)
        with contextlib.ExitStack() as unless_started, theirs:
            unless_started.callback(ours.close)
            number = str(theirs.fileno())
            given = {**environment, LIFELINE_FOR_COMMANDS: number}
            process = subprocess.Popen(command(number), env=given, pass_fds=(theirs.fileno(),), **options)  # noqa: S603
            unless_started.pop_all()
    try:
        running = Started(process, ours, hear)
        try:
            yield running
        finally:
            running.end()
    finally:
        ours.close()
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()


def run(
    command: Sequence[str | os.PathLike[str]],
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return its output.

    Args:
        command: the program and its arguments.
        timeout: the time limit in seconds; the program is then ended.
        env: its environment; None for this process's.
        cwd: its working directory.

    Raises:
        OSError: when it cannot be started.
        ProgramTimeout: when it exceeds the time limit.
    """
    words = [os.fspath(word) for word in command]
    ended: dict[str, Any] = {}
    python = find_python()
    with started(
        lambda lifeline: [python, "-I", "-S", str(RUNNER), lifeline, "--", *words],
        environment_of_tools() if env is None else env,
        lambda message: ended.update(message.head),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as program:
        try:
            printed = program.wait(_sayer(words, timeout), timeout)
        except TimeoutError:
            raise ProgramTimeout(words, timeout or 0, ended.get("pid", 0)) from None
    how = ended.get("ended", {"stopped": "an unknown signal"})
    if "errno" in how:
        raise OSError(how["errno"], os.strerror(how["errno"]), words[0])
    if "stopped" in how:
        raise InterruptedError(errno.EINTR, f"it was ended by {how['stopped']}", words[0])
    said, complaints = (text.decode("utf-8", errors="replace") for text in printed)
    return subprocess.CompletedProcess(words, how.get("exit", -how.get("signal", 0)), said, complaints)


def _sayer(words: Sequence[str], timeout: float | None) -> Callable[[], None]:
    """Return a function that logs, less and less often, that a program has not answered yet."""
    began, rhythm = time.monotonic(), Rhythm()
    limit = "" if timeout is None else f" (it is ended after {timeout:.0f} s)"

    def say() -> None:
        elapsed_seconds = time.monotonic() - began
        if rhythm.is_due(elapsed_seconds):
            _logger.warning("waiting for %s: %.0f s%s", shlex.join(words), elapsed_seconds, limit)

    return say


def _renew_after_fork() -> None:
    """In a forked child, replace the lock, and close the parent's lifelines, which the child would keep open."""
    global _starting
    _starting = threading.RLock()
    for lifeline in list(_lifelines):
        lifeline.close()
    _lifelines.clear()


os.register_at_fork(  # looked up by name each time: a child's own children have another lock
    before=lambda: _starting.acquire(),  # noqa: PLW0108
    after_in_parent=lambda: _starting.release(),  # noqa: PLW0108
    after_in_child=_renew_after_fork,
)
