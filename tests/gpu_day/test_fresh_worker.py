"""A test that leaves the GPU unusable, or hangs, costs its process and no other test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
import os, time
from tests.gpu_day import fresh_worker

state = []
fresh_worker.is_usable = lambda: not state  # as after an illegal memory access: for the rest of the process

def test_before(): pass
def test_poisons():
    state.append(1)
    raise RuntimeError("an illegal memory access was encountered")
def test_after(): assert not state
def test_fails(): assert False
def test_hangs(): time.sleep(600)
def test_last(): pass
"""


def test_a_process_that_cannot_use_its_gpu_any_more_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "test_gpu.py").write_text(TESTS, encoding="utf-8")
    plugins = [word for name in ("xdist", "pytest_timeout", "tests.gpu_day.fresh_worker") for word in ("-p", name)]
    options = [*plugins, "-v", "-n", "1", "--max-worker-restart", "5", "--timeout", "10", "--timeout-method", "thread"]
    command = [sys.executable, "-m", "pytest", *options, "-c", "/dev/null"]
    command += ["--rootdir", str(tmp_path), str(tmp_path)]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, encoding="utf-8", check=False, timeout=120
    )
    results = set(re.findall(r"(PASSED|FAILED) \S*::test_(\w+)", ran.stdout))
    passed = {("PASSED", name) for name in ("before", "after", "last")}
    assert results == passed | {("FAILED", name) for name in ("poisons", "fails", "hangs")}, ran.stdout + ran.stderr
    assert "RuntimeError: an illegal memory access was encountered" in ran.stdout
    assert "crashed while running 'test_gpu.py::test_hangs'" in ran.stdout


def test_each_failure_and_its_reason_are_printed_at_once_and_once(tmp_path: Path) -> None:
    tests = """
import os, pytest
@pytest.fixture
def broken(): raise RuntimeError("no device\\nmore")
def test_a(): assert 1 == 2
def test_b(broken): pass
def test_c(): pass
def test_d(): os._exit(9)
"""
    (tmp_path / "test_it.py").write_text(tests, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-v", "-rN", "--tb", "short", "-p", "tests.gpu_day.at_once"]
    command += ["-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path / "test_it.py")]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}
    ran = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, encoding="utf-8", check=False, timeout=120
    )
    assert ran.returncode == 9
    listed = re.findall(r"^(?:FAILED|ERROR) .*", ran.stdout, re.MULTILINE)
    assert listed == ["FAILED test_it.py::test_a - assert 1 == 2", "ERROR test_it.py::test_b - RuntimeError: no device"]
