"""Runs programs that end as Python ends, without the seconds that importing torch takes: they are forks of one that has.

Reads a line of JSON for each group of programs: their code, arguments, environments and files for standard error. Answers with
a line of their exit statuses; a program that did not end in time has been killed, and has none.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import torch.distributed  # noqa: F401  # this import is slow

import anyaccel.distributed  # noqa: F401

_SECONDS = 60


def _program(code: str, arguments: list[str], environment: dict[str, str], errors: str) -> None:
    """Make this fork the process of a program."""
    for descriptor, path in ((0, os.devnull), (1, os.devnull), (2, errors)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), descriptor)
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    globals()["code_of_this_program"] = compile(code, "<program>", "exec")


def _statuses(children: list[int]) -> list[int | None]:
    """Wait for all children, or until they have had their time."""
    until = time.monotonic() + _SECONDS
    statuses: dict[int, int | None] = dict.fromkeys(children)
    while (left := [child for child in children if statuses[child] is None]) and time.monotonic() < until:
        for child in left:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                statuses[child] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    for child in left:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return [statuses[child] for child in children]


def _serve() -> bool:
    """Return whether this is a fork, which is to run its program."""
    for line in sys.stdin:
        programs: list[dict[str, Any]] = json.loads(line)
        children = []
        for program in programs:
            child = os.fork()
            if child == 0:
                _program(**program)
                return True
            children.append(child)
        print(json.dumps(_statuses(children)), flush=True)
    return False


code_of_this_program = None
if __name__ == "__main__" and _serve():
    exec(code_of_this_program)  # noqa: S102  # at the module's top, from where Python ends by itself
