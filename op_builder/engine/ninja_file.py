"""Writes a build.ninja for the commands that build one library, and runs it.

ninja only schedules; it never sees names that users choose. Outputs and commands are numbered, and ``run_command.py``
starts the commands without a shell.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ninja

from ...accelerator import host
from .environment import LIFELINE_FOR_COMMANDS, PYTHON_FOR_COMMANDS
from .failure import Failure
from .interpreter import find_python
from .spawn import RUNNER, started

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .spawn import Message

__all__ = ["Command", "default_jobs", "run_ninja", "write_ninja"]

_BYTES_PER_JOB = 2 << 30  # of memory, for a compiler process with torch's headers


@dataclass(frozen=True)
class Command:
    """One command of a build.

    Attributes:
        words: the program's path and its arguments; file paths are absolute, or relative to the build folder.
        output: the output file, relative to the build folder; letters, digits, dots, underscores and hyphens only.
        needs: outputs of earlier commands that it reads.
    """

    words: tuple[str, ...]
    output: str
    needs: tuple[str, ...] = ()


def write_ninja(commands: Sequence[Command], folder: Path, limit_seconds: float | None = None) -> Path:
    """Write ``build.ninja`` and the files it needs into a folder, and return its path.

    Args:
        commands: the commands to run.
        folder: the folder.
        limit_seconds: the time limit for each command; None sets no limit.
    """
    (folder / RUNNER.name).write_bytes(RUNNER.read_bytes())
    limit = limit_seconds or 0
    lines = [
        "ninja_required_version = 1.5",
        "rule run",
        f'  command = exec "$${PYTHON_FOR_COMMANDS}" -I -S {RUNNER.name} "$${LIFELINE_FOR_COMMANDS}" $number {limit}',
    ]
    for number, command in enumerate(commands):
        (folder / f"{number}.command").write_bytes(b"\0".join(map(os.fsencode, command.words)))
        lines += [f"build {command.output}: run {' '.join(command.needs)}".rstrip(), f"  number = {number}"]
    file = folder / "build.ninja"
    file.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return file


def run_ninja(
    commands: Sequence[Command],
    folder: Path,
    jobs: int,
    environment: dict[str, str],
    tick: Callable[[float, str], None],
) -> Failure | None:
    """Run the commands of a folder's ``build.ninja``, and return the first failure, if any.

    Args:
        commands: the commands in ``build.ninja``.
        folder: the folder of ``build.ninja``.
        jobs: the number of commands to run at once.
        environment: the commands' environment.
        tick: called about twice per second with the seconds since the start and the longest-running process.
    """
    program = [str(Path(ninja.BIN_DIR) / "ninja"), "-C", str(folder), "-j", str(jobs), "--quiet"]
    began = time.monotonic()
    work = _Work(commands)
    with started(
        lambda _: program, {**environment, PYTHON_FOR_COMMANDS: find_python()}, work.hear,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as running:  # fmt: skip
        output, _ = running.wait(lambda: tick(time.monotonic() - began, work.longest_running()))
    status = running.process.returncode
    if work.failed and status >= 0:
        return work.failure(work.failed[0])
    if status != 0:
        ended = {"exit": status} if status > 0 else {"signal": -status}
        return Failure(tuple(program), output.decode("utf-8", errors="replace"), ended)
    missing = [number for number, command in enumerate(commands) if not (folder / command.output).is_file()]
    return work.failure(missing[0]) if missing else None


class _Work:
    """The messages from the runners of commands so far."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = commands
        self._said = [bytearray() for _ in commands]
        self._ended: dict[int, dict[str, Any]] = {}
        self._pids: dict[int, int] = {}
        self.failed: list[int] = []

    def hear(self, message: Message) -> None:
        number = message.head["number"]
        if "pid" in message.head:
            self._pids[number] = message.head["pid"]
        elif "said" in message.head:
            self._said[number] += message.content
        else:
            self._ended[number] = message.head["ended"]
            if message.head["ended"] != {"exit": 0}:
                self.failed.append(number)

    def longest_running(self) -> str:
        number = next((number for number in self._pids if number not in self._ended), None)
        return "" if number is None else f"{Path(self._commands[number].words[0]).name} is process {self._pids[number]}"

    def failure(self, number: int) -> Failure:
        said = self._said[number].decode("utf-8", errors="replace")
        return Failure(self._commands[number].words, said, self._ended.get(number, {}), self._pids.get(number, 0))


def default_jobs() -> int:
    """Return how many compilers to run at once: one per core, fewer if this machine or container is short of memory."""
    return max(1, min(host.processor().multi_processor_count, host.available_memory_bytes() // _BYTES_PER_JOB))
