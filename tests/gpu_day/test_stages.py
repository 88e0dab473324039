"""The GPU run, as far as it can be tested without a GPU: its order, its limits and its results."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from . import __main__ as day
from .stages import Outcome, Stage, longer, run_stages
from .wheels import requirements

ROOT = Path(__file__).parents[2]


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def _whats(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.name: outcome.what for outcome in outcomes}


def test_a_longer_day_has_longer_stages_and_a_shorter_one_the_same() -> None:
    stages = [Stage("tests", _python("pass"), 300)]
    assert [longer(stages, minutes)[0].seconds for minutes in (5, 20, 60)] == [300, 300, 900]


def test_a_failure_and_a_cut_stop_nothing_else(tmp_path: Path) -> None:
    stages = [
        Stage("fails", _python("print('why'); raise SystemExit(3)"), 60),
        Stage("hangs", _python("import time; print('began'); time.sleep(600)"), 12),
        Stage("absent", ["no-such-program"], 60, "it is not installed"),
        Stage("passes", _python("pass"), 60),
    ]
    assert _whats(list(run_stages(stages, tmp_path, ROOT, 600))) == {
        "fails": "failed with exit code 3",
        "hangs": "cut after 12 s",
        "absent": "left out: it is not installed",
        "passes": "passed",
    }
    assert (tmp_path / "fails.log").read_text() == "why\n"
    hangs = (tmp_path / "hangs.log").read_text()
    assert hangs.startswith("began\n")
    assert "KeyboardInterrupt" in hangs  # it could write what it had


def test_what_is_done_is_written_before_the_next_stage_begins(tmp_path: Path) -> None:
    stages = [Stage(name, _python("pass"), 60) for name in ("first", "second")]
    outcomes = run_stages(stages, tmp_path, ROOT, 600)
    next(outcomes)
    (row,) = json.loads((tmp_path / "day.json").read_text())
    assert (row["name"], row["what"]) == ("first", "passed")


def test_a_process_that_ignores_the_interrupt_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    began = time.monotonic()
    assert next(run_stages([Stage("hangs", _python(code), 12)], tmp_path, ROOT, 600)).what == "cut after 12 s"
    assert time.monotonic() - began < 60


def test_pytest_lists_its_failures_when_it_is_cut(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import time\ndef test_a(): assert 0\ndef test_b(): time.sleep(600)\n")
    command = ["env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", sys.executable, "-m", "pytest", "-v", "-c", "/dev/null"]
    stage = Stage("tests", [*command, f"--junitxml={tmp_path}/tests.xml", str(tmp_path / "test_it.py")], 30)
    outcome = next(run_stages([stage], tmp_path, tmp_path, 600))
    assert (outcome.what, outcome.summary.partition(" in ")[0]) == ("cut after 30 s", "1 failed")
    assert "test_a" in (tmp_path / "tests.xml").read_text()


def test_a_day_that_is_ended_from_outside_records_it_and_leaves_no_process(tmp_path: Path) -> None:
    code = "import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    program = f"""
import sys
from pathlib import Path
from tests.gpu_day.stages import Stage, end_by_sigterm, run_stages
end_by_sigterm()
stages = [Stage("passes", ["true"], 60), Stage("long", [sys.executable, "-c", {code!r}], 600)]
list(run_stages(stages, Path(sys.argv[1]), Path(sys.argv[1]), 1200))
"""
    with subprocess.Popen([*_python(program), str(tmp_path)], cwd=ROOT, stderr=subprocess.DEVNULL) as day_process:
        log = tmp_path / "long.log"
        deadline = time.monotonic() + 90
        while not (log.is_file() and log.read_text().endswith("\n")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        rows = json.loads((tmp_path / "day.json").read_text())
        assert [(row["name"], row["what"]) for row in rows] == [("passes", "passed"), ("long", "running")]
        day_process.terminate()
        assert day_process.wait(60) != 0
    rows = json.loads((tmp_path / "day.json").read_text())
    assert [(row["name"], row["what"]) for row in rows] == [("passes", "passed"), ("long", "interrupted")]
    _wait_for_the_end_of(int(log.read_text()))


def test_stages_that_run_again_replace_their_outcomes_alone(tmp_path: Path) -> None:
    list(
        run_stages(
            [Stage("first", _python("raise SystemExit(2)"), 60), Stage("second", ["true"], 60)], tmp_path, ROOT, 60
        )
    )
    list(run_stages([Stage("first", ["true"], 60)], tmp_path, ROOT, 60))
    rows = json.loads((tmp_path / "day.json").read_text())
    assert {row["name"]: row["what"] for row in rows} == {"first": "passed", "second": "passed"}


def test_an_unknown_stage_is_refused_with_the_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        day.main(["--out", str(tmp_path / "out"), "--device", "cpu", "--only", "bandwith"])
    assert "--only got bandwith; expected report, build, tests, memcheck, bandwidth" in capsys.readouterr().err


def test_a_stage_without_time_is_left_out_and_the_last_one_gets_the_rest(tmp_path: Path) -> None:
    stages = [Stage(name, _python("import time; time.sleep(600)"), 600) for name in ("long", "never")]
    began = time.monotonic()
    outcomes = list(run_stages(stages, tmp_path, ROOT, 2))
    assert time.monotonic() - began < 60
    assert _whats(outcomes) == {"long": "cut after 2 s", "never": "left out: no time is left"}


def test_what_a_stage_has_started_ends_with_it(tmp_path: Path) -> None:
    code = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    assert next(run_stages([Stage("parent", _python(code), 12)], tmp_path, ROOT, 600)).what == "cut after 12 s"
    _wait_for_the_end_of(int((tmp_path / "parent.log").read_text().splitlines()[0]))


def _wait_for_the_end_of(child: int) -> None:
    deadline = time.monotonic() + 30
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_every_stage_names_files_that_exist(tmp_path: Path) -> None:
    for stage in day._stages("cpu", tmp_path):
        named = [word for word in stage.command if word.startswith(("tests/", "benchmarks/"))]
        assert all((ROOT / word).exists() for word in named)
        assert named or stage.name in ("report", "build")
    assert sum(stage.seconds for stage in day._stages("cpu", tmp_path)) <= 20 * 60


def test_the_wheels_are_all_that_the_project_needs_but_torch() -> None:
    names = {line.partition(">")[0].partition("=")[0] for line in requirements()}
    assert {"filelock", "ninja", "typer", "cuda-bindings", "pytest", "hypothesis", "matplotlib"} <= names
    assert {"pytest-timeout", "pytest-xdist", "nvidia-cuda-sanitizer-api"} <= names
    assert not {"torch", "nvidia-cuda-nvrtc"} & names


_PEERS = """
import sys, types
def package(name, **functions):
    *parents, last = name.split(".")
    for end in range(1, len(parents) + 2):
        sys.modules.setdefault(".".join(name.split(".")[:end]), types.ModuleType(name))
    module = sys.modules[name]
    module.__dict__.update(functions)
    if parents:
        setattr(sys.modules[".".join(parents)], last, module)

import torch
from torch.nn.functional import layer_norm, rms_norm
package("liger_kernel.transformers.functional", liger_swiglu=lambda a, b: a + b, liger_layer_norm=None,
        liger_rms_norm=lambda x, w, eps, in_place: rms_norm(x, w.shape, w, eps))
def fused_rms_norm_affine(x, w, shape, eps):
    raise ValueError("no kernel for this GPU")
package("apex.normalization.fused_layer_norm", fused_rms_norm_affine=fused_rms_norm_affine,
        fused_layer_norm_affine=lambda x, w, b, shape, eps: layer_norm(x, shape, w, b, eps))
sys.path.insert(0, "benchmarks")
from bench_bandwidth import agreeing
from bench_kernels import cases
from kernel_peers import installed_peers
for name in ("RMSNorm", "SwiGLU", "LayerNorm", "bias-GELU"):
    case = cases()[name]
    inputs = case.inputs(4, 64, "cpu")
    print(name, *agreeing({k: v for k, v in installed_peers(name).items() if k != "triton"}, case, inputs), flush=True)
"""


def test_a_peer_that_fails_or_computes_something_else_is_left_out() -> None:
    ran = subprocess.run(
        _python(_PEERS), cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "apex is left out: no kernel for this GPU",
        "RMSNorm liger",
        "liger is left out: Tensor-likes are not close!",
        "SwiGLU",
        "liger is left out: 'NoneType' object is not callable",
        "LayerNorm apex",
        "bias-GELU",
    ]


def test_results_are_drawn_beside_them(tmp_path: Path) -> None:
    row = {
        "kernel": "RMSNorm", "dtype": "bfloat16", "shape": "8 x 4", "ours forward ms": "1.0", "ours ms": "2.000",
        "eager ms": "4.000", "apex ms": "-", "GB/s": "300", "of the limit": "75%",
    }  # fmt: skip
    results = tmp_path / "bandwidth_cuda.json"
    results.write_text(json.dumps({"title": "Forward and backward", "rows": [row]}), encoding="utf-8")
    code = "import json, sys; sys.path.insert(0, 'benchmarks'); from plot_bandwidth import rates\n"
    code += "print(json.dumps(rates(json.loads(sys.argv[1]))))"
    ran = subprocess.run([*_python(code), json.dumps(row)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == {"ours": 300.0, "eager": 150.0, "copy": 400.0}
    subprocess.run([sys.executable, "benchmarks/plot_bandwidth.py", str(results)], cwd=ROOT, check=True)
    assert (tmp_path / "bandwidth_cuda.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_gpu_it_says_how_to_rehearse(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.gpu_day", "--out", str(tmp_path / "out")]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={"CUDA_VISIBLE_DEVICES": ""}
    )
    assert ran.returncode == 1
    assert "got no GPU; expected one that torch can use. Fix: --device cpu rehearses it." in ran.stderr
