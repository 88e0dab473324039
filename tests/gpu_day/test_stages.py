"""The day on a GPU, as far as no GPU is needed: its order, its limits and what it leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil

from . import __main__ as day
from .stages import Outcome, Stage, run_stages
from .wheels import requirements

ROOT = Path(__file__).parents[2]


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def _whats(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.name: outcome.what for outcome in outcomes}


def test_a_failure_and_a_cut_stop_nothing_else(tmp_path: Path) -> None:
    stages = [
        Stage("fails", _python("print('why'); raise SystemExit(3)"), 60),
        Stage("hangs", _python("import time; print('began', flush=True); time.sleep(600)"), 2),
        Stage("absent", ["no-such-program"], 60, "it is not installed"),
        Stage("passes", _python("pass"), 60),
    ]
    assert _whats(list(run_stages(stages, tmp_path, ROOT, 600))) == {
        "fails": "failed with exit code 3",
        "hangs": "cut after 2 s",
        "absent": "left out: it is not installed",
        "passes": "passed",
    }
    assert (tmp_path / "fails.log").read_text() == "why\n"
    assert (tmp_path / "hangs.log").read_text() == "began\n"


def test_what_is_done_is_written_before_the_next_stage_begins(tmp_path: Path) -> None:
    stages = [Stage(name, _python("pass"), 60) for name in ("first", "second")]
    outcomes = run_stages(stages, tmp_path, ROOT, 600)
    next(outcomes)
    (row,) = json.loads((tmp_path / "day.json").read_text())
    assert (row["name"], row["what"]) == ("first", "passed")


def test_a_stage_without_time_is_left_out_and_the_last_one_gets_the_rest(tmp_path: Path) -> None:
    stages = [Stage(name, _python("import time; time.sleep(600)"), 600) for name in ("long", "never")]
    began = time.monotonic()
    outcomes = list(run_stages(stages, tmp_path, ROOT, 2))
    assert time.monotonic() - began < 60
    assert _whats(outcomes) == {"long": "cut after 2 s", "never": "left out: no time is left"}


def test_what_a_stage_has_started_ends_with_it(tmp_path: Path) -> None:
    code = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    assert next(run_stages([Stage("parent", _python(code), 3)], tmp_path, ROOT, 600)).what == "cut after 3 s"
    child = int((tmp_path / "parent.log").read_text())
    deadline = time.monotonic() + 30
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_every_stage_names_files_that_exist(tmp_path: Path) -> None:
    for stage in day._stages("cpu", tmp_path):
        named = [word for word in stage.command if word.startswith(("tests/", "benchmarks/"))]
        assert all((ROOT / word).exists() for word in named)
        assert named or stage.name in ("report", "build")
    assert sum(stage.seconds for stage in day._stages("cpu", tmp_path)[:7]) <= 20 * 60


def test_the_wheels_are_all_that_the_project_needs_but_torch() -> None:
    names = {line.partition(">")[0].partition("=")[0] for line in requirements()}
    assert {"filelock", "ninja", "typer", "cuda-bindings", "pytest", "hypothesis"} <= names
    assert not {"torch", "nvidia-cuda-nvrtc"} & names


def test_without_a_gpu_it_says_how_to_rehearse(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.gpu_day", "--out", str(tmp_path / "out")]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={"CUDA_VISIBLE_DEVICES": ""}
    )
    assert ran.returncode == 1
    assert "got no GPU; expected one that torch can use. Fix: --device cpu rehearses it." in ran.stderr
