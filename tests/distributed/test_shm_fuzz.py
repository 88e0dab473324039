"""The C++ core of shm alone, without torch: what has one right outcome, and random operations, under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SANITIZERS = {"thread": "thread", "address": "address,undefined"}
CHOSEN = os.environ.get("ANYACCEL_FUZZ", "")  # ranks, operations, seed


def built(folder: Path, sanitizer: str) -> Path:
    """Return the program tests/distributed/core, compiled with a sanitizer."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++, which brings the sanitizers")
    comm = ROOT / "csrc" / "comm"
    own = Path(__file__).parent / "core"
    sources = [comm / "core.cpp", comm / "reduce.cpp", *own.glob("*.cpp")]
    chosen = [f"-fsanitize={SANITIZERS[sanitizer]}", "-fno-sanitize-recover=all", "-Wno-tsan"]
    flags = ["-std=c++20", "-g1", "-O1", *chosen]
    include = [f"-I{ROOT / 'csrc' / 'includes'}", f"-I{comm}"]

    def compiled(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        subprocess.run([compiler, *flags, *include, "-c", source, "-o", target], check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    program = folder / "fuzz"
    linked = subprocess.run(
        [compiler, *flags, *objects, "-o", program, "-pthread"], capture_output=True, text=True, check=False
    )
    if "cannot find" in linked.stderr:
        pytest.skip(f"g++ without sanitizers: {linked.stderr}")
    assert linked.returncode == 0, linked.stderr
    return program


def run(program: Path, *arguments: str) -> None:
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    print(ran.stdout)  # what was done, with pytest -s
    assert ran.returncode == 0, ran.stderr
    assert "all results right" in ran.stdout, ran.stderr
    assert "WARNING" not in ran.stderr


@pytest.mark.timeout(3600 if CHOSEN else 300)
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_the_core_does_random_operations_under_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    """Ranks as threads on one mapping, where ThreadSanitizer sees every access, and as processes, which are killed."""
    if sanitizer != "thread" and not CHOSEN:
        pytest.skip("make test-soak runs it: `make test` has time for one of the two")
    program = built(tmp_path, sanitizer)
    run(program, "checks")
    run(program, "threads", *(CHOSEN or "2-8 150 1").split())
    run(program, "processes", *(CHOSEN or "2-8 100 2").split())
