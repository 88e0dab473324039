"""Starts programs in new processes that have imported torch: ``program_server.py`` forks them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVER = Path(__file__).with_name("program_server.py")
_BEFORE_ALL_TESTS = dict(os.environ)

COMMAND_LINE = "import sys; sys.argv[0] = 'anyaccel'; from anyaccel.cli import main; main()"
"""The program of the command ``anyaccel``."""


@dataclass(frozen=True)
class Program:
    """A program, and where it writes."""

    code: str
    arguments: Sequence[str]
    environment: dict[str, str]
    """All variables of its environment."""
    folder: str
    output: str = os.devnull
    errors: str = os.devnull
    ends_as_python: bool = False
    """Whether Python itself ends the process, and not :func:`os._exit`, after what was registered with :mod:`atexit`."""


class ProgramServer:
    """A process that has imported torch, in the environment in which the tests were started."""

    def __init__(self) -> None:
        self._requests = 0
        self._process = subprocess.Popen(
            [sys.executable, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_BEFORE_ALL_TESTS
        )

    def statuses(self, programs: Sequence[Program], seconds: float) -> list[int | None]:
        """Run programs at the same time; return their exit statuses, ``None`` for one that had to be killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests += 1
        request = {"programs": [asdict(one) for one in programs], "seconds": seconds, "number": self._requests}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = {}
        while answer.get("number") != self._requests:  # the answer to a test that timed out may come first
            answer = json.loads(self._process.stdout.readline())
        statuses: list[int | None] = answer["statuses"]
        return statuses

    def run(
        self, code: str, arguments: Sequence[str], environment: dict[str, str], folder: Path, log: Path
    ) -> subprocess.CompletedProcess[str]:
        """Run one program, like :func:`subprocess.run`; ``log`` is a folder for its output."""
        files = [log / "output", log / "errors"]
        for file in files:
            file.unlink(missing_ok=True)
        program = Program(code, arguments, environment, str(folder), *map(str, files))
        (status,) = self.statuses([program], 590)
        assert status is not None, f"not ended after 590 s: {code}"
        output, errors = (file.read_text(encoding="utf-8") for file in files)
        return subprocess.CompletedProcess([code, *arguments], status, output, errors)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
