"""Writes a build.ninja for the commands of one library, and runs it.

ninja schedules; it never sees a name that a user chose. Outputs are numbered, and a command is a number in
``commands.json``, which ``run_command.py`` starts without a shell.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ninja

from ...accelerator import host
from ..environment import PYTHON_FOR_COMMANDS
from .spawn import start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Command", "default_jobs", "run_ninja", "write_ninja"]

_BYTES_PER_JOB = 2 << 30  # what a compiler process may take on a file with torch's headers
_TICK_SECONDS = 0.5
_RUNNER = Path(__file__).with_name("run_command.py")


@dataclass(frozen=True)
class Command:
    """One command of a build.

    Attributes:
        words: the program's path and its arguments; files are relative to the folder that is built in, or absolute.
        output: the file that it makes there; letters, digits, dots, underscores and hyphens only.
        needs: outputs of earlier commands that it reads.
    """

    words: tuple[str, ...]
    output: str
    needs: tuple[str, ...] = ()


def write_ninja(commands: Sequence[Command], folder: Path) -> Path:
    """Write ``build.ninja`` and what it needs into a folder, and return the file."""
    (folder / "commands.json").write_text(json.dumps([list(command.words) for command in commands]))
    (folder / _RUNNER.name).write_bytes(_RUNNER.read_bytes())
    lines = [
        "ninja_required_version = 1.5",
        "rule run",
        f'  command = exec "$${PYTHON_FOR_COMMANDS}" -I -S {_RUNNER.name} $number',
    ]
    for number, command in enumerate(commands):
        lines += [f"build {command.output}: run {' '.join(command.needs)}".rstrip(), f"  number = {number}"]
    file = folder / "build.ninja"
    file.write_text("\n".join([*lines, ""]))
    return file


def run_ninja(
    folder: Path, jobs: int, environment: dict[str, str], tick: Callable[[float], None]
) -> subprocess.CompletedProcess[str]:
    """Run the build in a folder; the result holds everything the commands printed.

    Args:
        folder: where ``build.ninja`` is.
        jobs: how many commands run at once.
        environment: the commands' environment.
        tick: called about twice a second with the seconds since the start.
    """
    program = [str(Path(ninja.BIN_DIR) / "ninja"), "-C", str(folder), "-j", str(jobs), "--quiet"]
    started = time.monotonic()
    with start(
        program,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**environment, PYTHON_FOR_COMMANDS: sys.executable},
    ) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=_TICK_SECONDS)
                    return subprocess.CompletedProcess(program, process.returncode, output)
                except subprocess.TimeoutExpired:
                    tick(time.monotonic() - started)
        except BaseException:
            process.terminate()  # ninja ends its commands too
            raise


def default_jobs() -> int:
    """Return how many compilers to run at once: one a core, fewer where memory, or the container's share of it, is short."""
    return max(1, min(host.processor().multi_processor_count, host.available_memory_bytes() // _BYTES_PER_JOB))
