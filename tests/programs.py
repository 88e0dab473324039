"""Starts programs in new processes that have imported torch: ``program_server.py`` forks them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVER = Path(__file__).with_name("program_server.py")
COMMAND_LINE = "import sys; sys.argv[0] = 'anyaccel'; from anyaccel.cli import main; main()"
"""The program of the command ``anyaccel``."""
_BEFORE_ALL_TESTS = dict(os.environ)
_READ_AT_THE_START = ("PYTHON", "LD_", "OMP_", "MKL_", "KMP_", "TORCH_")  # Python's, or those of torch's import


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


@cache
def program_server() -> ProgramServer:
    """Return the server of this process; it ends with it, as its requests do."""
    return ProgramServer()


def run_program(
    code: str, arguments: Sequence[str], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run a program, like :func:`subprocess.run`; in a new interpreter if variables ask for another start than the server's.

    PYTHONPATH and PYTHONWARNINGS do not: forks heed them.
    """
    names = {name for name in {*environment, *_BEFORE_ALL_TESTS} if name.startswith(_READ_AT_THE_START)}
    names -= {"PYTHONPATH", "PYTHONWARNINGS"}
    if any(environment.get(name) != _BEFORE_ALL_TESTS.get(name) for name in names):
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    with tempfile.TemporaryDirectory() as log:
        files = [Path(log, name) for name in ("output", "errors")]
        program = Program(code, arguments, environment, str(folder), *map(str, files))
        (status,) = program_server().statuses([program], 590)
        assert status is not None, f"not ended after 590 s: {code}"
        output, errors = (file.read_text(encoding="utf-8") for file in files)
    return subprocess.CompletedProcess([code, *arguments], status, output, errors)


def run_command_line(
    arguments: Sequence[str | Path], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run ``anyaccel`` with some arguments."""
    return run_program(COMMAND_LINE, list(map(str, arguments)), environment, folder)
