"""The rehearsal with a pretended GPU, as far as it needs no CUDA build of torch: what it compiles, and how it reads a log."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import rehearsal, sanitizer
from .rehearsal import WITH_FINDING, failures, unexplained
from .sanitizer import TOOLS, sanitized
from .stages import Outcome, Stage, run_stages
from .stand_in.build import stubs, symbols
from .stand_in.sanitizer import install, rejection

LOG = """
FAILED tests/ops/test_sgd.py::test_a_step[cuda] - AssertionError: Tensor-likes are not close!
FAILED tests/ops/test_sgd.py::test_b[cuda] - assert 1 == 2
FAILED tests/ops/test_sgd.py::test_c[cuda-1] - AttributeError: no 'x' in 17 rows
FAILED tests/ops/test_sgd.py::test_c[cuda-2] - AttributeError: no 'x' in 18 rows
ERROR tests/ops/test_adam.py::test_d[cuda - 3] - RuntimeError: CUDA error
FAILED tests/ops/test_sgd.py::test_e[cuda] - RuntimeError: numel: integer multiplication overflow
3 failed
"""


def test_failures_that_a_stand_in_must_have_are_counted_apart_and_others_by_kind() -> None:
    found = failures(LOG)
    assert [*found.expected.values()] == [2, 1]
    assert dict(found.others) == {"AttributeError: no 'x' in # rows": 2, "RuntimeError: CUDA error": 1}


@pytest.mark.parametrize(("free", "is_expected"), [("64.00 GiB", True), ("63.97 GiB", True), ("0.50 GiB", False)])
def test_memory_that_is_full_is_not_a_size_that_depends_on_values(free: str, is_expected: bool) -> None:
    of_gpu = f"GPU 0 has a total capacity of 64.00 GiB of which {free} is free."
    error = f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 15.47 GiB. {of_gpu}"
    found = failures(f"FAILED tests/ops/test_sgd.py::test_a[cuda] - {error}\n")
    assert (found.expected.total(), found.others.total()) == (is_expected, not is_expected)


def test_a_generated_function_says_its_name_and_fails(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ for the stand-in")
    source, library = tmp_path / "stubs.cpp", tmp_path / "stubs.so"
    source.write_text(stubs({"cudaFirst", "cudaSecond"}, 801), encoding="utf-8")
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    assert {"cudaFirst", "cudaSecond"} <= symbols(library)
    assert ctypes.CDLL(str(library)).cudaSecond() == 801


def _log(folder: Path, name: str, *reasons: str) -> None:
    lines = [f"FAILED tests/ops/test_a.py::test_{number} - {reason}" for number, reason in enumerate(reasons)]
    (folder / f"{name}.log").write_text("\n".join([*lines, "1 failed in 2.00s", ""]), encoding="utf-8")


EXPLAINED = {
    "report": "passed",
    "tests": "failed with exit code 1",
    "racecheck": "failed with exit code 1",
    WITH_FINDING: "failed: it found errors",
}


@pytest.fixture
def explained(tmp_path: Path) -> Path:
    """A day's folder whose failures are those of a device without arithmetic."""
    for name in EXPLAINED:
        _log(tmp_path, name, "AssertionError: Tensor-likes are not close!")
    return tmp_path


def test_a_device_without_arithmetic_explains_wrong_values(explained: Path) -> None:
    assert unexplained(explained, EXPLAINED) == []


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"tests": "cut after 750 s"}, "tests: cut after 750 s"),
        ({"tests": "failed with exit code 2"}, "tests: failed with exit code 2"),
        ({"report": "failed with exit code 1"}, "report: failed with exit code 1"),
        ({"racecheck": "left out: no time is left"}, "racecheck: left out: no time is left"),
        ({"racecheck": "failed: it found errors"}, "racecheck: failed: it found errors"),
        ({WITH_FINDING: "failed with exit code 1"}, f"{WITH_FINDING}: failed with exit code 1"),
        ({WITH_FINDING: "passed"}, f"{WITH_FINDING}: passed"),
        ({"dense": "cut after 50 s"}, "dense: cut after 50 s"),
    ],
)
def test_a_stage_that_ends_otherwise_is_unexplained(explained: Path, changed: dict[str, str], found: str) -> None:
    assert unexplained(explained, EXPLAINED | changed) == [found]


@pytest.mark.parametrize("name", ["tests", "racecheck"])
def test_a_failure_for_another_reason_is_unexplained_in_each_log(explained: Path, name: str) -> None:
    _log(explained, name, "AssertionError: x", "RuntimeError: CUDA error 7", "RuntimeError: CUDA error 8")
    assert unexplained(explained, EXPLAINED) == [f"{name}: 2 failed for another reason: RuntimeError: CUDA error #"]
    _log(explained, name)
    assert unexplained(explained, EXPLAINED) == [f"{name}: its log lists no failures"]


def test_a_stage_that_is_missing_is_unexplained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        rows = [Outcome("report", "passed", 1.0)._asdict()]
        (tmp_path / "day.json").write_text(json.dumps(rows), encoding="utf-8")
        return subprocess.CompletedProcess(command, 0)

    for name in ("build", "install"):
        monkeypatch.setattr(rehearsal, name, lambda *_: None)
    monkeypatch.setattr(rehearsal, "environment", lambda _: {})
    monkeypatch.setattr(subprocess, "run", run)
    assert rehearsal.main(str(tmp_path), "1") == 1
    said = capsys.readouterr().out
    assert "tests: it did not run" in said
    assert "the day's exit code is 0" in said


_NEEDS_REAL = pytest.mark.skipif(
    sanitizer.packaged() is None, reason="needs pip's nvidia-cuda-sanitizer-api, for Linux"
)


@_NEEDS_REAL
@pytest.mark.parametrize("tool", TOOLS)
def test_nvidias_program_takes_the_options_of_the_day_and_no_others(tool: str) -> None:
    options = sanitizer.options(tool)
    assert rejection(options) == ""
    assert "unrecognised option" in rejection([*options, "--no-such-option"])
    assert "'--tool' is invalid" in rejection([*options[:1], "no-such-tool", *options[2:]])
    wrong = [word.replace("kernel_substring", "no_such_key") for word in options]
    assert "kernel-name" in rejection(wrong)


def _sanitized(tool: str, finding: str, code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    install(folder, finding)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
    stage = sanitized(tool, [sys.executable, "-c", code], 60)
    return next(run_stages([stage], folder, Path(__file__).parents[2], 600))


PASSES = "print('3 passed in 0.12s')"
FAILS = "print('1 failed, 2 passed in 0.12s'); raise SystemExit(1)"


@_NEEDS_REAL
@pytest.mark.parametrize(
    ("tool", "finding", "code", "what", "summary"),
    [
        ("memcheck", "", PASSES, "passed", "3 passed in 0.12s; ERROR SUMMARY: 0 errors"),
        (
            "racecheck", "", PASSES, "passed",
            "3 passed in 0.12s; RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
        ),
        (
            "racecheck", "racecheck", PASSES, "failed: it found errors",
            "3 passed in 0.12s; RACECHECK SUMMARY: 1 hazards displayed (1 errors, 0 warnings)",
        ),
        (
            "synccheck", "synccheck", FAILS, "failed: it found errors",
            "1 failed, 2 passed in 0.12s; ERROR SUMMARY: 1 error",
        ),
        (
            "memcheck", "synccheck", FAILS, "failed with exit code 1",
            "1 failed, 2 passed in 0.12s; ERROR SUMMARY: 0 errors",
        ),
    ],
)  # fmt: skip
def test_a_sanitizers_report_decides_its_stage(
    tool: str, finding: str, code: str, what: str, summary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = _sanitized(tool, finding, code, tmp_path, monkeypatch)
    assert (outcome.what, outcome.summary) == (what, summary)


@_NEEDS_REAL
def test_under_a_sanitizer_some_test_must_have_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = _sanitized("memcheck", "", "print('9 skipped in 0.12s')", tmp_path, monkeypatch)
    assert outcome.what.startswith("failed: its log has no line like")


def test_a_finding_of_a_sanitizer_counts_when_the_stage_is_cut(tmp_path: Path) -> None:
    code = (
        "print('a test ========= Invalid __global__ write of size 4 bytes', flush=True); import time; time.sleep(600)"
    )
    stage = Stage("memcheck", [sys.executable, "-c", code], 12, finding=sanitizer.FINDING)
    assert next(run_stages([stage], tmp_path, tmp_path, 600)).what == "failed: it found errors, and was cut after 12 s"


def test_exit_code_0_without_a_report_is_no_pass(tmp_path: Path) -> None:
    stage = Stage("memcheck", [sys.executable, "-c", PASSES], 60, proofs=(sanitizer.CLEAN,), finding=sanitizer.FINDING)
    assert next(run_stages([stage], tmp_path, tmp_path, 600)).what.startswith(
        "failed: its log has no line like ========="
    )


def test_without_compute_sanitizer_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "find", lambda: None)
    assert sanitized("memcheck", ["true"], 60).left_out == (
        "compute-sanitizer is not installed; make gpu-day-wheels collects it"
    )
