"""The fuzzer finds the planted defects, and nothing else: on the ordinary build of every op, and on one under sanitizers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anyaccel.op_builder import CPUOpBuilder
from anyaccel.op_builder.loading import library_of

from ..programs import run_program

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parent.parent.parent
FUZZ = "import runpy; runpy.run_module('tests.fuzz', run_name='__main__', alter_sys=True)"


class PlantedBuilder(CPUOpBuilder):
    """Builds the ops with planted defects."""

    NAME = "planted"
    STABLE_ABI = True
    SOURCES = (str(Path(__file__).with_name("planted.cpp")),)

    def include_paths(self) -> list[str]:
        return [str(ROOT / "csrc" / "stable")]

    def functions(self) -> Any:
        return None


def _fuzz(folder: Path, *options: str, environment: dict[str, str] | None = None) -> tuple[dict[str, Any], str]:
    """Return the results by target, and the output."""
    report = folder / "report.json"
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--jobs", "1", "--report", str(report), *options], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}, check=False,
    )  # fmt: skip
    assert report.exists(), ended.stdout[-3000:]
    results = {result["target"]: result for result in json.loads(report.read_text(encoding="utf-8"))}
    if any(result["findings"] for result in results.values()):
        assert ended.returncode == 1, ended.stdout[-3000:]
    return results, ended.stdout


def test_what_is_planted_is_found_and_can_be_repeated(tmp_path: Path) -> None:
    PlantedBuilder().load()
    planted = ["--library", str(library_of("planted").binary), "--namespace", "planted"]
    results, output = _fuzz(tmp_path, *planted, "--calls", "150")
    assert "Segmentation fault" in output or "AddressSanitizer" in output
    said = {
        "planted::reads_past": "the process ended with",
        "planted::ignores_strides": "on plain copies",
        "planted::writes_input": "memory beside the elements of what is written was changed",
        "planted::writes_before_it_refuses": "a call that was refused wrote to the memory of ['x']",
        "planted::has_a_fake_of_other_strides": "shape, dtype and strides",
        "planted::has_a_fake_that_fails": "the fake of planted::has_a_fake_that_fails fails: RuntimeError",
    }
    for target, text in said.items():
        found = [finding for finding in results[target]["findings"] if text in finding["what"]]
        assert found, (target, results[target])
        again = run_program(FUZZ, (*planted, "--repeat", json.dumps(found[0]["case"])), dict(os.environ), ROOT)
        assert again.returncode not in (0, 2), again.stdout + again.stderr
    assert results["planted::sound"]["findings"] == []
    assert results["planted::sound"]["accepted"] > 15
    assert results["planted::refuses_everything"]["accepted"] == 0
    assert "planted::refuses_everything: only 0 of 150 calls were accepted" in output


def test_every_op_and_every_public_function(tmp_path: Path) -> None:
    results, output = _fuzz(tmp_path, "--calls", "100", "--public-calls", "12", "--least-accepted", "0")
    assert not [result for result in results.values() if result["findings"]], output[-5000:]
    raw = [result for name, result in results.items() if "::" in name]
    assert sum(result["accepted"] > 0 for result in raw) >= 0.8 * len(raw)
    assert {"anyaccel::swiglu", "anyaccel::adam_step", "anyaccel.ops.swiglu", "moe.combine"} <= results.keys()


def test_an_op_under_sanitizers(tmp_path: Path) -> None:
    """``make fuzz`` runs all of them; building them alone takes minutes."""
    if shutil.which("g++") is None:
        pytest.skip("no g++, whose sanitizers these are")
    libraries = [
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    if not all(Path(library).is_absolute() for library in libraries):
        pytest.skip("g++ is installed without libasan")
    environment = {
        "ANYACCEL_CACHE_DIR": str(tmp_path / "cache"),
        "CXX": str(Path(__file__).with_name("sanitized-g++")),
        "SANITIZED_LEVEL": "-O0",
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2048",
    }
    results, output = _fuzz(
        tmp_path, "--only", "sgd", "--calls", "300", "--public-calls", "30",
        "--least-accepted", "0", environment=environment,
    )  # fmt: skip
    assert not [result for result in results.values() if result["findings"]], output[-5000:]
    assert "anyaccel::sgd_step" in results
