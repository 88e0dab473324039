"""Runs programs without the seconds that importing torch takes: they are forks of a process that has done so.

Reads a line of JSON for each group of programs: how long they may take, and their code, arguments, environments, folders and
files for output and errors. Answers with a line of their exit statuses, and the number of the request; a program that did not
end in time has been killed, and has no status.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
from typing import Any

import torch._dynamo  # this import is slow, and follows from the first step of one of torch's optimizers
import torch.distributed  # noqa: F401

import anyaccel.op_builder  # noqa: F401


def _become(folder: str, output: str, errors: str, environment: dict[str, str], arguments: list[str]) -> dict[str, Any]:
    """Make this fork the process of a program; return the names of its module."""
    for descriptor, path in ((0, os.devnull), (1, output), (2, errors)):
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(folder)
    if (further := environment.get("PYTHONPATH", "")) != os.environ.get("PYTHONPATH", ""):
        sys.path[1:1] = further.split(os.pathsep)
    if wanted := environment.get("PYTHONWARNINGS"):
        warnings._processoptions(wanted.split(","))  # type: ignore[attr-defined]
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    sys.path[0] = ""
    tempfile.tempdir = None  # TMPDIR may be another one
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    return main.__dict__


def _compiled(code: str) -> types.CodeType:
    return compile(code, "<string>", "exec", dont_inherit=True)  # not with this module's annotations


def _run_to_its_end(code: str, names: dict[str, Any]) -> None:
    """Run a program and what it left to be done at its end; Python's own end takes half a second, which few programs need."""
    status = 0
    try:
        exec(_compiled(code), names)  # noqa: S102
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python's end does
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if status == 1 and ended.code != 1:
            print(ended.code, file=sys.stderr)
    except BaseException:
        status = 1
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _statuses(children: list[int], seconds: float) -> list[int | None]:
    """Wait for all children, or until they have had their time."""
    until = time.monotonic() + seconds
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


def _serve() -> tuple[Any, dict[str, Any]] | None:
    """Return, in a fork for a program that is to end as Python ends, its code and the names of its module."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        children = []
        for program in request["programs"]:
            child = os.fork()
            if child == 0:
                code, ends_as_python = program.pop("code"), program.pop("ends_as_python")
                names = _become(**program)
                if ends_as_python:
                    return _compiled(code), names
                _run_to_its_end(code, names)
            children.append(child)
        statuses = _statuses(children, request["seconds"])
        print(json.dumps({"statuses": statuses, "number": request["number"]}), flush=True)
    return None


gc.collect()
gc.freeze()  # forks do not look for garbage in what was imported here, which would copy its memory
if __name__ == "__main__" and (program_to_run := _serve()) is not None:
    exec(*program_to_run)  # noqa: S102  # at the module's top, from where Python ends by itself
