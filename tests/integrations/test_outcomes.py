"""``make test-deepspeed``: it fails if a test passes with stock deepspeed only, and a hang or a crash costs one file."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "ecosystem"
PROGRAM = """
import sys
from pathlib import Path
from own_tests import SIDES, find_files, run_file
tests, out = Path("tests").resolve(), Path("out").resolve()
for file in find_files(tests, ["unit", "unit/missing"]):
    for side in SIDES:
        (out / side).mkdir(parents=True, exist_ok=True)
        print(side, file, run_file(file, side, tests, out / side, float(sys.argv[1])))
"""
TESTS = """
import os, subprocess, sys, time, pytest
ours = "anyaccel.integrations.deepspeed" in sys.modules
class TestIt:
    @pytest.mark.sequential
    def test_same(self): pass
    def test_better(self): assert ours
    def test_skipped(self): pytest.skip("needs a GPU")
"""
WORSE = """
    def test_worse(self): assert not ours
    if not ours:
        def test_missing(self): pass
@pytest.fixture
def given():
    yield
    assert not ours
def test_worse_at_the_end(given): pass
"""
ENDS_EARLY = """
def test_ends():
    if not ours: os._exit(3)
    child = subprocess.Popen(["sleep", "600"])
    open("child", "w").write(str(child.pid))
    child.wait()
"""


def _compare(folder: Path) -> tuple[int, list[str]]:
    command = [sys.executable, SCRIPTS / "outcomes.py", folder / "stock", folder / "ours"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_what_passes_with_stock_only_and_what_did_not_end_is_listed_and_fails(tmp_path: Path) -> None:
    files = {
        "test_bad": TESTS + WORSE,
        "test_ends": TESTS + ENDS_EARLY,
        "test_module": f"{TESTS}if not ours: pytest.skip(allow_module_level=True)",
    }
    (tmp_path / "tests/unit").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "tests/unit" / f"{name}.py").write_text(text)
    (tmp_path / "tests/pytest.ini").write_text("[pytest]\naddopts = -m 'not sequential'\nmarkers =\n  sequential")
    environment = {"PYTHONPATH": str(SCRIPTS), "PATH": "/usr/bin:/bin", "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, "30"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "not in this clone: unit/missing",
        "stock unit/test_bad.py 4 passed, 1 failed, 1 skipped",
        "ours unit/test_bad.py 2 passed, 2 failed, 1 skipped",
        "stock unit/test_ends.py 1 passed, 1 failed, 1 skipped; ended early with status 3",
        "ours unit/test_ends.py 2 passed, 0 failed, 1 skipped; stopped after 30 s",
        "stock unit/test_module.py 0 passed, 0 failed, 1 skipped",
        "ours unit/test_module.py 2 passed, 0 failed, 1 skipped",
    ]
    assert "in test_ends" in (tmp_path / "out/ours/unit.test_ends.log").read_text(), "no stack of what hung"
    child = Path("/proc", (tmp_path / "tests/child").read_text())
    assert not child.exists() or "Z" in (child / "stat").read_text(), "a child of the tests outlived the limit"
    out = tmp_path / "out"
    status, lines = _compare(out)
    assert status == 1
    assert lines[2:] == [
        "| unit/test_bad.py | 4 | 1 | 1 | 2 | 2 | 1 |",
        "| unit/test_ends.py | 1 | 1 | 1 | 2 | 0 | 1 |",
        "| unit/test_module.py | 0 | 0 | 1 | 2 | 0 | 1 |",
        "| unit | 5 | 2 | 3 | 6 | 2 | 3 |",
        "5 pass with stock deepspeed; of them 3 do not with the integration; 4 others do",
        "unit/test_bad.py::TestIt::test_missing: not run",
        "unit/test_bad.py::TestIt::test_worse: failed",
        "unit/test_bad.py::test_worse_at_the_end: failed",
        "not run to its end: stock: unit.test_ends.jsonl",
        "not run to its end: ours: unit.test_ends.jsonl",
    ]
    for side in ("stock", "ours"):
        (out / side / "unit.test_bad.jsonl").unlink()
    assert _compare(out)[0] == 1, "a file that did not run to its end"
    for side in ("stock", "ours"):
        (out / side / "unit.test_ends.jsonl").unlink()
    assert _compare(out)[0] == 1, "no test passed with stock deepspeed"


LOSES_A_RANK = """
import multiprocessing, os, time

def test_loses_a_rank():  # as deepspeed's tests do
    pool = multiprocessing.Pool(1)
    try:
        pool.apply_async(os._exit, (1,)).get(float(os.environ.get("DS_UNITTEST_TIMEOUT", "600")))
    finally:
        pool.apply(time.sleep, (600,))

def test_after_it(): pass
"""


def test_a_test_that_loses_a_rank_does_not_hold_up_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    import own_tests

    monkeypatch.setattr(own_tests, "TEST_LIMIT_S", 9)
    (tmp_path / "test_it.py").write_text(LOSES_A_RANK)
    assert own_tests.run_file("test_it.py", "stock", tmp_path, tmp_path, 120) == "1 passed, 1 failed, 0 skipped"


def test_only_locks_that_no_build_holds_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    import os

    from own_tests import remove_stale_locks

    for name in ("killed", "begins", "at_work"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
        if name != "begins":
            os.utime(tmp_path / name / "lock", (time.time() - 100, time.time() - 100))
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path / "at_work") as compiler:
        remove_stale_locks()
        compiler.kill()
    assert sorted(lock.parent.name for lock in tmp_path.glob("*/lock")) == ["at_work", "begins"]
