"""A failed command, and the error to raise for it."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import BuildError, BuildStoppedError, BuildTimeoutError
from .scratch import lack_of_room

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Failure"]

_SHOWN_ERRORS = 5
_ERROR = re.compile(
    r"^(?:(?!\b(?:warning|note|remark):).)*?"
    r"(?:(?:^|[\s:;,])error(?: #\d+(?:-D)?)?\s*:|\bfatal\s*:"
    r"|: (?:undefined (?:reference|symbol)|multiple definition|cannot find)\b)",
    re.IGNORECASE,
)
"""A tool's own form of an error: ``op.cpp:1:2: error: …``, ``ptxas fatal   : …``, ``ld: op.o: undefined reference to …``."""
_NAMES_AN_ERROR = re.compile(r"\berror\b|\bfatal\b|undefined (reference|symbol)|cannot find|not found", re.IGNORECASE)
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SUMMARY = re.compile(
    r"collect2: error: ld returned \d+ exit status|compilation terminated\.|make(\[\d+\])?: "
    r"|clang(\+\+)?: error: linker command failed"
)


@dataclass(frozen=True)
class Failure:
    """A command that failed.

    Attributes:
        command: the command and its arguments.
        said: everything it printed.
        ended: how it ended: ``exit``, ``signal``, ``errno``, ``stopped`` or ``timeout``, as ``run_command.py`` reports it.
        pid: its process id.
    """

    command: tuple[str, ...]
    said: str
    ended: dict[str, Any] = field(default_factory=dict)
    pid: int = 0

    def error(self, op: str, folder: Path, log: Path) -> Exception:
        """Return the error to raise, and write the command's output to the log.

        Args:
            op: the op's name.
            folder: the folder of the build.
            log: the log file.
        """
        is_cut = self.ended.get("signal") == signal.SIGXFSZ  # by ulimit -f
        no_room = OSError(errno.EFBIG, os.strerror(errno.EFBIG)) if is_cut else lack_of_room(self.said)
        if no_room is not None:
            return OSError(no_room.errno, no_room.strerror, str(folder))
        command = shlex.join(self.command)
        ending = self._ending()
        content = f"{command}\n{self.said}\n{ending}\n"
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content.encode(errors="surrogateescape"))
        if "timeout" in self.ended:
            return BuildTimeoutError(op, command, self.pid, self.ended["timeout"], log)
        if "stopped" in self.ended:
            return BuildStoppedError(op, command, self.ended["stopped"])
        return BuildError(op, command, self._errors(), log, ending)

    def _ending(self) -> str:
        match self.ended:
            case {"exit": 0}:
                return "it produced no file"
            case {"exit": int(status)}:
                return f"exit status {status}"
            case {"signal": int(number)}:
                return f"it was ended by {_signal_name(number)}"
            case {"errno": int(number)}:
                return f"it cannot be run: {os.strerror(number)}"
            case {"timeout": float(seconds)}:
                return f"process {self.pid} was ended after {seconds:g} s"
            case {"stopped": str(reason)}:
                return f"it was ended by {reason}"
        return ""

    def _errors(self) -> list[str]:
        """Return the first lines that name an error, including the engine's own."""
        said = [line.strip() for line in _COLOURS.sub("", self.said).splitlines()]
        said = [line for line in said if not _SUMMARY.match(line)] or said
        errors = [line for line in said if _ERROR.match(line)]
        errors = errors or [line for line in said if _NAMES_AN_ERROR.search(line)] or said[-_SHOWN_ERRORS:]
        if "signal" in self.ended:
            hint = "; if memory ran out, set ANYACCEL_BUILD_JOBS=1" if self.ended["signal"] == signal.SIGKILL else ""
            ending = f"error: {self.command[0]} was ended by {_signal_name(self.ended['signal'])}{hint}"
            errors = [ending, *errors]
        elif "errno" in self.ended:
            errors = [f"error: {self.command[0]} cannot be run: {os.strerror(self.ended['errno'])}"]
        return errors[:_SHOWN_ERRORS]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
