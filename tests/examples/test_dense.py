"""The examples of the ladder, as its readers run them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from anyaccel.op_builder.engine.toolchains.sycl import probe_dpcpp
from anyaccel.op_builder.op import CSRC

from ..programs import run_program

EXAMPLE = Path(__file__).parents[2] / "examples" / "dense"
HAS_GPU = torch.get_device_module("cuda").is_available()


RUNS = """
import runpy, sys, warnings
warnings.simplefilter("ignore")
sys.path[0] = sys.argv.pop(1)
sys.argv[0] = f"{sys.path[0]}/{sys.argv.pop(1)}"
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(script: str, *arguments: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run_program(RUNS, [str(EXAMPLE), script, *arguments], {**os.environ, **env}, folder)


def launch(script: str, *arguments: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script that starts processes, which import it."""
    command = [sys.executable, "-W", "ignore", EXAMPLE / script, *arguments]
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **env}  # a rank that aborts says where
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=240
    )


@pytest.mark.parametrize("mode", ["py", "cpp", "sycl"])
def test_gradients_agree(mode: str, tmp_path: Path) -> None:
    if mode == "sycl" and probe_dpcpp().tool is None:
        pytest.skip(f"no DPC++: {probe_dpcpp().detail}")
    finished = run("grad_check.py", mode, folder=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert f"{mode}: weight.grad differs from py by" in finished.stdout
    assert ("first and second derivatives agree" in finished.stdout) is (mode != "sycl")


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("grad_check.py", ["cuda"]),
        ("grad_check.py", ["triton"]),
        ("benchmark.py", ["-m", "ptx"]),
        ("distributed.py", ["-m", "cuda"]),
    ],
)
def test_missing_hardware_is_one_line_and_status_2(script: str, arguments: list[str], tmp_path: Path) -> None:
    finished = run(script, *arguments, folder=tmp_path)
    assert finished.returncode == 2
    assert finished.stderr.startswith(f"mode '{arguments[-1]}' cannot run here: ")
    assert len(finished.stderr.splitlines()) == 1


def test_the_benchmark_compares_and_plots(tmp_path: Path) -> None:
    finished = run("benchmark.py", "-m", "cpp", "--sizes", "8", "16", "--plot", "out.png", folder=tmp_path)
    assert finished.returncode == 0, finished.stderr
    for peer in ("eager", "py", "compile"):
        assert f"{peer} / cpp: " in finished.stdout
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("backend", "ranks"), [pytest.param("gloo", "2", marks=pytest.mark.slow), ("shm", "3")])
def test_training_by_the_ring(backend: str, ranks: str, tmp_path: Path) -> None:
    finished = launch("distributed.py", "-m", "cpp", "--nproc", ranks, "--backend", backend, folder=tmp_path)
    assert finished.returncode == 0, finished.stderr
    losses = [float(line.split()[-1]) for line in finished.stdout.splitlines() if line.startswith("step")]
    assert len(losses) == 4
    assert losses[-1] < 0.8 * losses[0]
    assert "the ring agreed with all_reduce in every step" in finished.stdout


def test_ptx_is_assembled_once_and_again_after_an_edit(tmp_path: Path) -> None:
    if shutil.which("ptxas") is None:
        pytest.skip("no ptxas")
    source = tmp_path / "sigmoid.ptx"
    shutil.copy(EXAMPLE / "sigmoid.ptx", source)
    results = []
    for command, edit in (("compile", ""), ("compile", ""), ("recompile", ""), ("compile", "// edited\n")):
        source.write_text(edit + source.read_text())
        finished = run(
            "ptx.py", command, "--source", str(source), folder=tmp_path, ANYACCEL_CACHE_DIR=str(tmp_path / "cache")
        )
        assert finished.returncode == 0, finished.stderr
        binary = Path(finished.stdout.split()[-1])
        results.append((binary, binary.stat().st_ino, binary.stat().st_mtime_ns))
    assert results[0] == results[1]
    assert results[2][0].parent == results[0][0].parent
    assert results[2] != results[1]
    assert results[3][0].parent != results[0][0].parent
    source.write_text(source.read_text().replace("ex2.approx.f32", "ex2.aprox.f32"))
    refused = run("ptx.py", "compile", "--source", str(source), folder=tmp_path)
    assert refused.returncode == 2
    assert "ex2" in refused.stderr


def _scripted(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, "ANYACCEL_CACHE_DIR": str(folder / "cache"), **env}
    return subprocess.run(
        [EXAMPLE / script], capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=240
    )


@pytest.mark.skipif(shutil.which("ptxas") is None or shutil.which("c++") is None, reason="no ptxas, or no C++ compiler")
def test_a_program_without_python_runs_the_assembled_ptx(tmp_path: Path) -> None:
    """With a fake driver, which keeps memory on the host, and computes a sigmoid in the launched threads."""
    if not HAS_GPU:
        refused = _scripted("compile.sh", tmp_path)
        assert refused.returncode == 2, refused.stderr
        assert "sigmoid cannot run here: libcuda.so.1: cannot open" in refused.stderr
    library = tmp_path / "libcuda.so.1"
    source = Path(__file__).parent / "sigmoid_driver.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-lm"], check=True)
    for script, wrong, said in (
        ("compile.sh", "", "1000003 numbers, the largest error is 8.9e-08"),
        ("recompile.sh", "1e-3", "the largest error is 1.0e-03"),
        ("recompile.sh", "nan", "the largest error is nan"),
    ):
        finished = _scripted(script, tmp_path, LD_LIBRARY_PATH=str(tmp_path), WRONG_BY=wrong)
        assert finished.returncode == (1 if wrong else 0), finished.stderr
        assert said in finished.stdout
    failed = _scripted("recompile.sh", tmp_path, LD_LIBRARY_PATH=str(tmp_path), FAILS="cuMemAlloc_v2")
    assert failed.returncode == 2
    assert failed.stderr == "sigmoid cannot run here: cuMemAlloc_v2: as asked\n"


def test_the_examples_ptx_is_the_packages() -> None:
    assert (EXAMPLE / "sigmoid.ptx").read_text() == (CSRC / "dense" / "sigmoid.ptx").read_text()
