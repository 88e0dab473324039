"""What became of looking for a tool, and what tools said of themselves, remembered."""

from __future__ import annotations

import json
import logging
import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...environment import build_timeout, compiler_environment, compiler_variables, search_path
from ..directory import Directory, read_regular
from ..errors import CacheError
from ..inputs import stamp_of
from ..scratch import in_scratch_folder, lack_of_room
from ..spawn import run
from .identity import Identity, identify, namesakes, stamps_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["Memory", "Probe", "Remembered", "run_quietly", "said_version"]

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


@dataclass(frozen=True)
class Remembered:
    """What a tool said of itself, and what it is made of."""

    said: str
    identity: Identity


class Memory:
    """Remembers what tools said of themselves; losing it costs only time.

    Args:
        folder: where to keep it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def recall(
        self,
        command: Sequence[str],
        ask: Callable[[], str],
        asked: Sequence[Sequence[str]] = (),
        further: Callable[[], Sequence[str]] = tuple,
    ) -> Remembered:
        """Return what ``ask`` once answered about a tool as it is now; ask when it is new, or a program of it was replaced.

        Args:
            command: the tool's command.
            ask: answers, or raises OSError; an error is not remembered.
            asked: arguments with which the tool tells what programs it starts.
            further: gives other files that belong to it.
        """
        key = json.dumps([list(command), compiler_variables()], sort_keys=True)
        remembered = self._read()
        known = _still_true(remembered.get(key), command)
        if known is not None:
            return known
        said = ask()
        environment = compiler_environment(self.folder)
        identity = in_scratch_folder(
            self.folder,
            f"asking {shlex.join(command)} for its programs",
            lambda folder: identify(command, environment, asked, further(), folder),
        )
        value = {
            "said": said,
            "digest": identity.digest,
            "programs": stamps_of(identity.programs),
            "variables": list(identity.variables),
            "values": compiler_variables(identity.variables),
        }
        self._write({**remembered, key: value})
        return Remembered(said, identity)

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(read_regular(self.folder / _FILE))
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def _write(self, answers: dict[str, Any]) -> None:
        try:
            Directory(self.folder).write(_FILE, json.dumps(answers).encode())
        except (OSError, CacheError) as error:
            _logger.debug("what the tools said of themselves is not remembered: %s", error)


def _still_true(value: Any, command: Sequence[str]) -> Remembered | None:
    """Return what was remembered, where it has the right form and every program is what it was; else None."""
    if not isinstance(value, dict) or set(value) != {"said", "digest", "programs", "variables", "values"}:
        return None
    programs, variables = value["programs"], value["variables"]
    if not (isinstance(programs, dict) and isinstance(variables, list) and set(map(type, variables)) <= {str}):
        return None
    if not (isinstance(value["said"], str) and isinstance(value["digest"], str)):
        return None
    path = search_path()
    present = [other for word in command if os.path.isabs(word) for other in namesakes(word, path)]
    is_same = (
        all(place in programs for place in present)
        and all("\0" not in place and stamp_of(place) == stamp for place, stamp in programs.items())
        and compiler_variables(variables) == value["values"]
    )
    return Remembered(value["said"], Identity(value["digest"], tuple(programs), tuple(variables))) if is_same else None


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
