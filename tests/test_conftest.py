"""What every test relies on: see ``conftest.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .programs import run_program


def test_control_c_reaches_what_tests_start_in_a_background_job_too() -> None:
    code = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for a job that it starts with &
import tests.conftest
child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
subprocess.run([sys.executable, "-c", child], check=True)
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "True\n"


@pytest.mark.parametrize(
    "code",
    [
        "def f(x: int) -> None: pass\nprint(f.__annotations__, __name__, f.__module__)",
        "import sys, os; print(sys.argv, os.getcwd(), sys.path[0], sys.stdin.read())",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('later'))).start(); print('now')",
        "import atexit; atexit.register(print, 'at the end'); print('now')",
        "import sys; sys.exit('said')",
        "import sys; sys.exit(3)",
        "raise SystemExit",
        "1 / 0",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import tempfile; print(tempfile.gettempdir())",
        "import beside; print(beside.WORD)",
        "import warnings; warnings.warn('this')",
        "import os; print(os.environ['GIVEN'], os.environ.get('HOME'))",
    ],
)
def test_a_fork_runs_a_program_as_an_interpreter_does(tmp_path: Path, code: str) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "beside.py").write_text("WORD = 'found'\n")
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path / "modules"), "GIVEN": "word"}
    environment |= {"PYTHONWARNINGS": "error"}
    environment.pop("HOME", None)
    forked = run_program(code, ["an", "argument"], environment, tmp_path)
    command = [sys.executable, "-c", code, "an", "argument"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False, input="")
    assert (forked.returncode, forked.stdout) == (run.returncode, run.stdout)
    assert forked.stderr.splitlines()[-1:] == run.stderr.splitlines()[-1:]
