"""The time to load an op with SYCL: for the first time ever, with an empty kernel cache, and warm; each in a new process."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import show

LOAD = """
import sys, time
import torch
started = time.perf_counter()
from anyaccel.op_builder.kernel_loader import RMSNormLoader
op = RMSNormLoader().load(ext_name="sycl")
op.rms_norm(torch.ones(4, 8), torch.ones(8))
print(time.perf_counter() - started)
"""
ROUNDS = 5


def seconds(cache: Path) -> float:
    """Return the time of a load and a first call in a new process."""
    environment = {**os.environ, "ANYACCEL_CACHE_DIR": str(cache)}
    shown = subprocess.run(
        [sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return float(shown.stdout)


def main() -> None:
    times: dict[str, list[float]] = {"first use ever": [], "empty kernel cache": [], "warm": []}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder)
            times["first use ever"].append(seconds(cache))
            for kept in cache.glob("rms_norm_sycl-*"):
                shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
            times["empty kernel cache"].append(seconds(cache))
            times["warm"].append(seconds(cache))
    targets = {"first use ever": "8", "empty kernel cache": "3", "warm": "0.7"}
    rows = [[what, f"{statistics.median(found):.2f}", targets[what]] for what, found in times.items()]
    show("sycl", "rms_norm by SYCL on the CPU: load and first call, medians", ["cache", "s", "at most"], rows)


if __name__ == "__main__":
    main()
