"""CPUAdam: from an empty cache, and from a warm one in a new process, against deepspeed's builder."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import show

COLD_ROUNDS, WARM_ROUNDS = 3, 9

OURS = "import anyaccel; builder = anyaccel.get_accelerator().create_op_builder('CPUAdamBuilder')"
DEEPSPEED = "from deepspeed.ops.op_builder import CPUAdamBuilder; builder = CPUAdamBuilder()"


def seconds(imports: str, cache: Path) -> float:
    """Time ``load()`` alone, in a new process that has imported what it needs."""
    code = f"""
import torch, time
{imports}
started = time.perf_counter()
builder.load()
print("seconds:", time.perf_counter() - started)
"""
    environment = {
        **os.environ,
        "ANYACCEL_CACHE_DIR": str(cache / "ours"),
        "TORCH_EXTENSIONS_DIR": str(cache / "theirs"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # deepspeed looks for ninja there
    }
    command = [sys.executable, "-W", "ignore", "-c", code]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if finished.returncode != 0:
        raise SystemExit(finished.stderr)
    return float(finished.stdout.split("seconds:")[1])


def main() -> None:
    cold: dict[str, list[float]] = {OURS: [], DEEPSPEED: []}
    warm: dict[str, list[float]] = {OURS: [], DEEPSPEED: []}
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(COLD_ROUNDS):
            for candidate, times in cold.items():
                times.append(seconds(candidate, Path(folder) / str(round_)))
        for _ in range(WARM_ROUNDS):
            for candidate, times in warm.items():
                times.append(seconds(candidate, Path(folder) / "0"))
    rows = []
    for what, times, target in (("empty cache", cold, "1/8"), ("warm cache, new process", warm, "1/100")):
        ours, theirs = statistics.median(times[OURS]), statistics.median(times[DEEPSPEED])
        rows.append([what, f"{ours:.3f}", f"{theirs:.3f}", f"1/{theirs / ours:.0f}", target])
    show("load", "CPUAdam, load(), medians", ["what", "ours s", "deepspeed s", "ours / deepspeed", "target"], rows)


if __name__ == "__main__":
    main()
