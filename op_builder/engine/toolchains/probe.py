"""The result of looking for a tool, and a cache of tools' versions."""

from __future__ import annotations

import json
import logging
import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ..cache import TOOLS
from ..directory import Directory, read_regular
from ..environment import build_timeout, compiler_environment, compiler_variables, program_search
from ..errors import CacheError
from ..inputs import stamp_of
from ..scratch import in_scratch_folder, lack_of_room
from .identity import Identity, digest_of_programs, find, identify

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["Memory", "Probe", "Remembered", "run_quietly", "said_version"]

_logger = logging.getLogger(__name__)
_REMEMBERED = 64
"""How many tools and settings are kept; one that is left out is asked again."""
_TIMEOUT_SECONDS = 300  # on first use, ziglang builds its own C++ library

T = TypeVar("T")


@dataclass(eq=False)  # like in native_facts.py: the first call of an op uses this class
class Probe(Generic[T]):
    """The result of looking for one tool.

    Attributes:
        toolchain: the toolchain of the tool, such as ``"C++"``.
        name: the name of the candidate.
        tool: the tool, if it was accepted.
        detail: its version if it was accepted; otherwise the reason for the rejection.
        fix: the one command that makes it acceptable; empty if there is none.
    """

    toolchain: str
    name: str
    tool: T | None
    detail: str
    fix: str = ""


class Remembered(NamedTuple):
    """A tool's version text, and the programs that it consists of."""

    said: str
    identity: Identity


class Memory:
    """Caches the tools' version texts; losing the cache costs only time.

    Args:
        folder: the folder of the cache.
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
        """Return the cached answer of ``ask`` for a tool; call ``ask`` if the tool is new or a program of it was replaced.

        Args:
            command: the tool's command.
            ask: returns the answer, or raises OSError; errors are not cached.
            asked: arguments that make the tool print the programs that it starts.
            further: returns further files that belong to it.
        """
        key = json.dumps([list(command), _deciding_variables()], sort_keys=True)
        remembered = self._read()
        known = _known(remembered.get(key))
        if known is not None and _is_same(known.identity, remembered[key]["values"]):
            stamps = remembered[key]["programs"]
            if all(stamp_of(program) == stamp for program, stamp in stamps.items()):
                return known
            if digest_of_programs(stamps) == known.identity.digest:  # touched, or used from another machine
                self._write({**remembered, key: _described(known.said, known.identity)})
                return known
        said = ask()
        environment = compiler_environment(self.folder)
        identity = in_scratch_folder(
            self.folder,
            f"asking {shlex.join(command)} for its programs",
            lambda folder: identify(command, environment, asked, further(), folder),
        )
        self._write({**remembered, key: _described(said, identity)})
        return Remembered(said, identity)

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(read_regular(self.folder / TOOLS))
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def _write(self, answers: dict[str, Any]) -> None:
        latest = dict([*answers.items()][-_REMEMBERED:])
        try:
            Directory(self.folder).write(TOOLS, json.dumps(latest).encode())
        except (OSError, CacheError) as error:
            _logger.debug("the versions of the tools are not cached: %s", error)


def _deciding_variables(further: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables that may change what a tool answers; the date that a build gets does not."""
    return {name: value for name, value in compiler_variables(further).items() if name != "SOURCE_DATE_EPOCH"}


def _described(said: str, identity: Identity) -> dict[str, Any]:
    return {
        "said": said,
        "digest": identity.digest,
        "programs": {program: stamp_of(program) for program in identity.programs},
        "lookups": dict(identity.lookups),
        "values": _deciding_variables(identity.variables),
        "variables": list(identity.variables),
    }


def _known(value: Any) -> Remembered | None:
    """Return a cached value if it has the right form; otherwise None."""
    members = {"said": str, "digest": str, "programs": dict, "lookups": dict, "values": dict, "variables": list}
    if not isinstance(value, dict) or {name: type(one) for name, one in value.items()} != members:
        return None
    texts = [*value["programs"], *value["programs"].values(), *value["lookups"], *value["lookups"].values()]
    texts += [*value["variables"], *value["values"], *value["values"].values()]
    try:
        is_sound = b"\0" not in os.fsencode("".join(texts))
    except (TypeError, ValueError):  # a value that is not text, or an incomplete character
        is_sound = False
    if not is_sound:
        return None
    return Remembered(
        value["said"],
        Identity(value["digest"], tuple(value["programs"]), tuple(value["variables"]), value["lookups"]),
    )


def _is_same(identity: Identity, values: dict[str, str]) -> bool:
    """Return whether a tool's names still lead to the same programs, and the variables of its scripts are unchanged."""
    if _deciding_variables(identity.variables) != values:
        return False
    if not identity.lookups:
        return True
    environment = program_search()
    return all(find(word, environment) == found for word, found in identity.lookups.items())


def said_version(command: Sequence[str], memory: Path) -> str:
    """Run ``<command> --version`` and return its output.

    Raises:
        OSError: when the command cannot be run, fails or prints nothing.
        subprocess.SubprocessError: when it exceeds the time limit.
    """
    shown = run_quietly([*command, "--version"], memory)
    said = shown.stdout.strip()
    if not said:
        msg = "it prints no version"
        raise OSError(msg)
    return said


def run_quietly(command: Sequence[str], memory: Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    Raises:
        OSError: when it cannot be run or fails, with its last message.
    """
    limit_seconds = min(build_timeout() or _TIMEOUT_SECONDS, _TIMEOUT_SECONDS)
    from ..spawn import run

    finished = run(command, limit_seconds, compiler_environment(memory, cwd), cwd)
    if finished.returncode != 0:
        no_room = lack_of_room(finished.stderr + finished.stdout)
        if no_room is not None:
            raise no_room
        said = (finished.stderr.strip() or finished.stdout.strip() or "it prints nothing").splitlines()
        first_error = next((line for line in said if "error" in line), said[-1])
        msg = f"exit status {finished.returncode}: {first_error}"
        raise OSError(msg)
    return finished
