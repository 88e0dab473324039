"""The example device in C++ passes its own tests and the contract, in a new process: torch has only one PrivateUse1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulated_device"


@pytest.mark.timeout(900)  # the first run compiles it
def test_the_example_passes_its_tests_and_the_contract() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", EXAMPLE, "."]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=EXAMPLE)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "failed" not in finished.stdout.splitlines()[-1]


def test_sources_stay_short() -> None:
    for source in [*EXAMPLE.rglob("*.cpp"), *EXAMPLE.rglob("*.h"), *EXAMPLE.rglob("*.py")]:
        assert len(source.read_text().splitlines()) < 300, source
