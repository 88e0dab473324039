"""Runs one command, and ends it with all its children when the process that started it is gone.

ninja and ``spawn.py`` start this file as a program. It never uses a shell: ninja passes a number, never a name that a user
chose. The command's output and exit status go through the lifeline, a socket whose other end only the starting process holds.
So compiler output cannot be mistaken for a message of this program, and needs no disk space.

Usage: ``run_command.py LIFELINE NUMBER SECONDS`` or ``run_command.py LIFELINE -- COMMAND ARGUMENT ...``.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time

_GRACE_SECONDS = 0.5
_CHUNK_BYTES = 1 << 15  # a message must fit into the socket's buffer
_DRAINED_CHUNKS = 4  # the rest of a pipe after the command ended; background children may print without end
_LONGEST_WAIT_MS = 1 << 30  # poll() takes 32 bits; the loop looks again
_WATCHED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores these, and child processes inherit that


class _Runner:
    """One command and its lifeline."""

    def __init__(self, lifeline: int, number: int, limit_seconds: float) -> None:
        self._number = number
        self._limit_seconds = limit_seconds
        self._received: list[int] = []
        self._lifeline = lifeline
        os.set_inheritable(self._lifeline, False)
        self._events = select.poll()
        self._events.register(self._lifeline, select.POLLIN)
        self._wake, wakes = os.pipe()
        for end in (self._wake, wakes):
            os.set_blocking(end, False)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the starting process may have blocked SIGCHLD
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        self._events.register(self._wake, select.POLLIN)
        for each in _WATCHED_SIGNALS:
            if signal.getsignal(each) != signal.SIG_IGN:  # as under nohup
                signal.signal(each, lambda received, _: self._received.append(received))
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake poll

    def run(self, command: list[bytes], *, forwards: bool) -> dict[str, object]:
        """Run a command to its end, and return how it ended; ``forwards`` sends its output through the lifeline."""
        output, given = os.pipe() if forwards else (-1, -1)
        actions = [(os.POSIX_SPAWN_DUP2, given, 1), (os.POSIX_SPAWN_DUP2, given, 2)] if forwards else []
        try:
            pid = os.posix_spawnp(
                command[0], command, os.environb, file_actions=actions, setpgroup=0, setsigdef=_RESET_SIGNALS
            )
        except OSError as error:
            return {"errno": error.errno}
        if forwards:
            os.close(given)
            os.set_blocking(output, False)
            self._events.register(output, select.POLLIN)
        self.send({"pid": pid})
        stopped = self._wait(pid, output)
        for _ in range(_DRAINED_CHUNKS):
            self._forward(output)
        _, status = os.waitpid(pid, 0)
        if stopped:
            return stopped
        return {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"exit": os.WEXITSTATUS(status)}

    def send(self, message: dict[str, object], content: bytes = b"") -> bool:
        """Send a message to the starting process, and return whether it still listens."""
        head = json.dumps({"number": self._number, **message}).encode()
        try:
            os.write(self._lifeline, head + b"\n" + content)
        except OSError:
            return False
        return True

    def _wait(self, pid: int, output: int) -> dict[str, object]:
        """Wait until a command ends, or end it and return the reason. It stays a zombie, so its pid is not reused."""
        began = time.monotonic()
        while True:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return {}
            remaining = began + self._limit_seconds - time.monotonic() if self._limit_seconds else None
            reason: dict[str, object] = {}
            if remaining is not None and remaining <= 0:
                reason = {"timeout": self._limit_seconds}
            elif self._received:
                reason = {"stopped": signal.Signals(self._received[0]).name}
            else:
                wait_ms = None if remaining is None else min(remaining * 1000 + 1, _LONGEST_WAIT_MS)
                ready = {file for file, _ in self._events.poll(wait_ms)}
                if self._wake in ready:
                    os.read(self._wake, 512)
                if output in ready and not self._forward(output):
                    self._events.unregister(output)
                    output = -1
                if self._lifeline in ready:  # nobody writes to it: its other end is closed
                    reason = {"stopped": "the end of the process that started it"}
            if reason:
                _end(pid)
                return reason

    def _forward(self, output: int) -> bool:
        """Send the next part of a command's output, and return whether more may come."""
        if output < 0:
            return False
        try:
            content = os.read(output, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if content:
            self.send({"said": True}, content)
        return bool(content)


def _end(pid: int) -> None:
    """End a command and its children; some may ignore signals, or lead their own process group as ``timeout`` does.

    Processes with a session of their own, such as a compiler cache's server, are left alone.
    """
    below = _descendants(pid)
    _kill(pid, below, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    _kill(pid, below | _descendants(pid), signal.SIGKILL)


def _kill(group: int, processes: set[int], number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, number)
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, number)


def _descendants(pid: int) -> set[int]:
    """Return the descendants of a process that are in its session."""
    parents: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{int(name)}/stat", "rb") as file:
                _, above, _, session, *_ = file.read().rpartition(b")")[2].split()
            parents[int(name)] = int(above), int(session)
    own_session = parents.get(pid, (0, -1))[1]
    found: set[int] = set()
    pending = [pid]
    while pending:
        parent = pending.pop()
        below = [one for one, (its, session) in parents.items() if its == parent and session == own_session]
        found.update(below)
        pending += below
    return found


def main() -> int:
    """Run a command, and return its exit status."""
    lifeline, number, *rest = sys.argv[1:]
    if number == "--":
        runner = _Runner(int(lifeline), 0, 0)
        ended = runner.run([os.fsencode(word) for word in rest], forwards=False)
    else:
        runner = _Runner(int(lifeline), int(number), float(rest[0]))
        with open(f"{number}.command", "rb") as file:
            command = file.read()
        ended = runner.run(command.split(b"\0"), forwards=True)
    runner.send({"ended": ended})
    return 0 if ended == {"exit": 0} else 1


if __name__ == "__main__":
    sys.exit(main())
