"""Runs an unmodified program with deepspeed on our accelerator and ops.

``python -m anyaccel.integrations.deepspeed train.py …``, ``… -m package.module …``, or ``… ds_report`` (any command beside
this Python or in PATH that is Python). For several ranks: ``deepspeed --module anyaccel.integrations.deepspeed train.py …``.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from pathlib import Path

from . import install

_USAGE = "usage: python -m anyaccel.integrations.deepspeed [-m MODULE | FILE | COMMAND] [ARGUMENT ...]"


def _command(name: str) -> str | None:
    """Return the path of a command of this environment, which need not be activated, or else of one in PATH."""
    return shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)


def _run(arguments: list[str]) -> None:
    if "".join(arguments[:1]).startswith("--local_rank"):
        # deepspeed's launcher puts this option before the program; the program gets it as its first argument.
        named = 2 if arguments[1:2] == ["-m"] else 1
        arguments = [*arguments[1 : named + 1], arguments[0], *arguments[named + 1 :]]
    if arguments[:1] == ["-m"] and len(arguments) > 1:
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    if not arguments or arguments[0].startswith("-"):
        raise SystemExit(_USAGE)
    program = arguments[0] if Path(arguments[0]).exists() else _command(arguments[0])
    if program is None:
        msg = f"running a program failed: got {arguments[0]!r}; expected a file, or a command in PATH.\n{_USAGE}"
        raise SystemExit(msg)
    sys.argv = [program, *arguments[1:]]
    # Like `python FILE`: modules in the program's folder are importable.
    sys.path[0] = os.path.dirname(os.path.abspath(program))  # links are not resolved
    runpy.run_path(program, run_name="__main__")


install()
_run(sys.argv[1:])
