"""What every test relies on: see ``conftest.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


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
