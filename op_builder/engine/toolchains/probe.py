"""What became of looking for a tool, and what tools said of themselves, remembered."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from ...environment import build_timeout, compiler_environment
from ..scratch import lack_of_room
from ..spawn import run

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence

__all__ = ["Memory", "Probe", "run_quietly", "said_version"]

_logger = logging.getLogger(__name__)
_FILE = "toolchains.json"
_TIMEOUT_SECONDS = 300  # ziglang's first use builds its own C++ library

T = TypeVar("T")


@dataclass(frozen=True)
class Probe(Generic[T]):
    """What became of looking for one tool.

    Attributes:
        toolchain: the toolchain that it belongs to, such as ``"C++"``.
        name: what was looked for.
        tool: the tool, where it was accepted.
        detail: its version where it was accepted; else why it was not.
        fix: the one command that makes it acceptable; empty where there is none to give.
    """

    toolchain: str
    name: str
    tool: T | None
    detail: str
    fix: str = ""


class Memory:
    """Remembers what tools said of themselves; losing it costs only time.

    Args:
        folder: where to keep it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def recall(self, command: Sequence[str], ask: Callable[[], str]) -> str:
        """Return what ``ask`` once answered about these programs, as they are now; ask when they are new or replaced.

        Args:
            command: the tool's command; every word that is a program counts with its path, size and modification time.
            ask: answers, or raises OSError; an error is not remembered.
        """
        programs = [found for word in command if (found := shutil.which(word)) is not None]  # of `ccache g++`, both
        key = json.dumps([list(command), *map(_identity, programs)])
        remembered = self._read()
        if key not in remembered:
            remembered = {**remembered, key: ask()}
            self._write(remembered)
        return remembered[key]

    def _read(self) -> dict[str, str]:
        try:
            content = json.loads((self.folder / _FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _write(self, answers: dict[str, str]) -> None:
        try:
            with tempfile.TemporaryDirectory(dir=self.folder, prefix="staging-") as folder:
                written = Path(folder) / _FILE
                written.write_text(json.dumps(answers), encoding="utf-8")
                os.replace(written, self.folder / _FILE)
        except OSError as error:
            _logger.debug("what the tools said of themselves is not remembered: %s", error)


def said_version(command: Sequence[str], memory: Path) -> str:
    """Run ``<command> --version`` and return what it says.

    Raises:
        OSError: when it cannot be run, fails or says nothing.
        subprocess.SubprocessError: when it does not end.
    """
    shown = run_quietly([*command, "--version"], memory)
    said = shown.stdout.strip()
    if not said:
        msg = "it says no version"
        raise OSError(msg)
    return said


def run_quietly(command: Sequence[str], memory: Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    Raises:
        OSError: when it cannot be run or fails, with the last thing it said.
    """
    limit_seconds = min(build_timeout() or _TIMEOUT_SECONDS, _TIMEOUT_SECONDS)
    finished = run(command, limit_seconds, compiler_environment(memory, cwd), cwd)
    if finished.returncode != 0:
        no_room = lack_of_room(finished.stderr + finished.stdout)
        if no_room is not None:
            raise no_room
        said = (finished.stderr.strip() or finished.stdout.strip() or "it says nothing").splitlines()
        first_error = next((line for line in said if "error" in line), said[-1])
        msg = f"exit status {finished.returncode}: {first_error}"
        raise OSError(msg)
    return finished


def _identity(program: str) -> list[int | str]:
    resolved = Path(program).resolve()
    status = resolved.stat()
    return [str(resolved), status.st_size, status.st_mtime_ns]
