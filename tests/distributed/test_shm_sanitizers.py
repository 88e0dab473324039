"""The whole of shm, built with sanitizers, between simulated hosts; test_shm_fuzz has the core alone, which is faster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SANITIZERS = {"thread": "thread -Wno-tsan", "address": "address,undefined -fno-sanitize-recover=all"}
LIBRARIES = {"thread": "libtsan.so", "address": "libasan.so"}
FILES = (
    "test_shm_heads",
    "test_shm_any_source",
    "test_shm_agreement",
    "test_random_programs",
    "test_shm_between_hosts",
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_groups_between_hosts_under_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++, which brings the sanitizers")
    names = (LIBRARIES[sanitizer], "libstdc++.so.6")
    libraries = [
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in names
    ]
    if not all(Path(library).is_absolute() for library in libraries):
        pytest.skip(f"g++ is installed without {LIBRARIES[sanitizer]}")
    environment = {
        **os.environ,
        "ANYACCEL_CACHE_DIR": str(tmp_path / "cache"),
        "CXX": f"g++ -g1 -fsanitize={SANITIZERS[sanitizer]}",
        "OMP_WAIT_POLICY": "passive",
    }
    builds = [sys.executable, "-c", "from anyaccel.cli import main; main()", "build", "shm_comm"]
    subprocess.run(builds, env=environment, cwd=HERE.parents[1], check=True)
    watched = {
        **environment,
        "LD_PRELOAD": " ".join(libraries),
        "TSAN_OPTIONS": f"log_path={tmp_path}/finding suppressions={HERE / 'tsan.supp'}",
        "ASAN_OPTIONS": f"log_path={tmp_path}/finding detect_leaks=0",
        "UBSAN_OPTIONS": f"log_path={tmp_path}/finding print_stacktrace=1",
    }
    chosen = ["-k", "not every_dtype and not frameworks", *(str(HERE / f"{name}.py") for name in FILES)]
    played = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n0", *chosen],
        env=watched, cwd=HERE.parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    findings = [one.read_text(errors="replace") for one in tmp_path.glob("finding*")]
    assert not findings, findings[0][:5000]
    assert played.returncode == 0, played.stdout[-5000:]
