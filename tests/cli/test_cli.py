"""The command line, as users type it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ..programs import run_command_line

ANYACCEL = Path(sys.executable).parent / "anyaccel"


def _run(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    import os

    environment = {**os.environ, "COLUMNS": "200", "DS_ACCELERATOR": "cpu", **env}
    return run_command_line(arguments, environment, cwd)


def test_help_names_every_subcommand_and_each_has_an_example(tmp_path: Path) -> None:
    shown = _run("--help", cwd=tmp_path).stdout
    for command in ("report", "cache", "conformance", "demo"):
        assert command in shown
        shown_for = ("cache", "list") if command == "cache" else (command,)
        assert f"Example: anyaccel {command}" in _run(*shown_for, "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("command", [(str(ANYACCEL),), (sys.executable, "-m", "anyaccel")], ids=["command", "module"])
def test_version(tmp_path: Path, command: tuple[str, ...]) -> None:
    import anyaccel

    shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert shown == f"anyaccel {anyaccel.__version__}\n"


def test_options_without_a_command_are_refused(tmp_path: Path) -> None:
    finished = _run("-v", cwd=tmp_path)
    assert finished.returncode == 2
    assert "Missing command" in finished.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_disk_without_room_for_the_output_is_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        finished = subprocess.run(
            [ANYACCEL, "cache", "list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path
        )
    assert finished.returncode == 1
    (line,) = finished.stderr.splitlines()
    assert line.startswith("error: writing the output failed: got No space left on device;")


def test_square_brackets_of_a_fix_are_shown(tmp_path: Path) -> None:
    finished = _run("doctor", cwd=tmp_path, CUDA_HOME="/nowhere", ANYACCEL_CACHE_DIR=str(tmp_path / "cache"))
    assert "pip install 'anyaccel[nvcc]'" in " ".join(finished.stdout.split())


def test_help_imports_no_torch(tmp_path: Path) -> None:
    code = "import sys; from anyaccel.cli import app; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_a_program_that_calls_main_ends_as_any_other(tmp_path: Path) -> None:
    """Only our own command leaves objects in cycles as they are when it ends."""
    code = """
import sys
from anyaccel.cli import main
class Cycle:
    def __init__(self): self.own = self
    def __del__(self): print("finalized", flush=True)
kept = Cycle()
sys.argv = ["anyaccel", "--version"]
main()
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    assert shown.splitlines()[1:] == ["finalized"]


def test_report_shows_tables(tmp_path: Path) -> None:
    finished = _run("report", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    for expected in ("Accelerators", "chosen", "DS_ACCELERATOR=cpu", "torch", "gloo", "cpu_adam"):
        assert expected in finished.stdout
    assert "ziglang" not in finished.stdout
    assert "…" not in finished.stdout
    everything = _run("report", "-v", cwd=tmp_path).stdout
    for expected in ("Toolchains", "ziglang", "c++", "CPUAdamBuilder", "FlashAttention"):
        assert expected in everything


def test_report_names_what_is_wrong(tmp_path: Path) -> None:
    given = {"CXX": "no-such-compiler", "ANYACCEL_CACHE_DIR": str(tmp_path / "cache"), "COLUMNS": "200"}
    shown = _run("report", cwd=tmp_path, **given).stdout
    assert "not buildable" in shown
    assert "CXX=no-such-compiler: not found" in shown
    report = json.loads(_run("report", "--json", cwd=tmp_path, **given).stdout)
    (op,) = [op for op in report["ops"] if op["builder"] == "CPUAdamBuilder"]
    assert op["state"] == "not buildable"
    assert "CXX=no-such-compiler: not found" in op["detail"]


def test_report_as_json(tmp_path: Path) -> None:
    report = json.loads(_run("report", "--json", cwd=tmp_path, ANYACCEL_CACHE_DIR=str(tmp_path / "cache")).stdout)
    assert report["versions"]["torch"] == torch.__version__
    assert [device["name"] for device in report["devices"] if device["chosen"]] == ["cpu"]
    assert {device["name"] for device in report["devices"]} >= {"cuda", "xpu", "cpu"}
    assert all(device["reason"] for device in report["devices"])
    assert report["communication_backends"]["gloo"] is True
    assert report["memory"]["host total"] > 0
    assert report["cpu"]["architecture"]
    assert any(toolchain["accepted"] for toolchain in report["toolchains"])
    (op,) = [op for op in report["ops"] if op["builder"] == "CPUAdamBuilder"]
    assert op["state"] == "buildable"


def test_report_under_torchrun_says_which_way_ranks_take(tmp_path: Path) -> None:
    """Ranks 0 and 1 on one pretended host, rank 2 on another."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "--no-python"]
    report = [Path(sys.executable).parent / "anyaccel", "report", "--json"]
    shell = 'ANYACCEL_SHM_HOST="host$((RANK / 2))" exec "$@"'
    finished = subprocess.run(
        [*torchrun, "bash", "-c", shell, "bash", *report], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    memory, gloo = json.loads(finished.stdout)["ranks"]
    assert memory == {"way": "memory", "reason": "the ranks share memory", "pairs": [[0, 1]]}
    assert gloo["way"] == "gloo"
    assert gloo["pairs"] == [[0, 2], [1, 2]]
    assert "ANYACCEL_SHM_HOST (host0 and host1)" in gloo["reason"]


def test_an_error_of_ours_is_one_message_and_no_traceback(tmp_path: Path) -> None:
    finished = _run("report", cwd=tmp_path, DS_ACCELERATOR="nonsense")
    assert finished.returncode == 1
    assert "got DS_ACCELERATOR='nonsense'" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_conformance_of_our_cpu(tmp_path: Path) -> None:
    finished = _run("conformance", "anyaccel:CPU_Accelerator", cwd=tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "12 unsupported, 0 wrong" in finished.stdout


def test_a_report_is_json_or_a_page(tmp_path: Path) -> None:
    finished = _run("report", "--json", "--html", "report.html", cwd=tmp_path)
    assert finished.returncode == 2
    assert "Fix: run it twice" in finished.stderr
    assert not (tmp_path / "report.html").exists()


def test_a_locale_without_letters_shows_them_anyway(tmp_path: Path) -> None:
    given = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    assert _run("report", cwd=tmp_path, **given).returncode == 0
    place = str(tmp_path / "cäche")
    assert _run("cache", "path", cwd=tmp_path, ANYACCEL_CACHE_DIR=place, **given).stdout == f"{place}\n"


@pytest.mark.parametrize(
    "command",
    [["cache", "path"], ["cache", "list"], ["cache", "verify"], ["cache", "clear"], ["build", "lion"]],
)
def test_a_relative_home_is_an_error_with_a_fix(tmp_path: Path, command: list[str]) -> None:
    done = _run(*command, cwd=tmp_path, HOME="nowhere", XDG_CACHE_HOME="", ANYACCEL_CACHE_DIR="")
    assert done.returncode == 1
    assert "finding the user's cache directory failed: HOME is 'nowhere'" in done.stderr
    assert "Fix: set ANYACCEL_CACHE_DIR" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_doctor_says_that_there_is_no_home(tmp_path: Path) -> None:
    done = _run("doctor", "--json", cwd=tmp_path, HOME="", XDG_CACHE_HOME="", ANYACCEL_CACHE_DIR="")
    assert done.returncode == 1
    assert "HOME is '', which is not an absolute path" in done.stdout
    assert "Traceback" not in done.stderr
