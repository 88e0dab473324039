"""CPUAdam, loaded with an empty cache and with a warm one in a new process, against torch's and deepspeed's builders."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import show

COLD_ROUNDS, WARM_ROUNDS = 3, 9
HERE = Path(__file__).parent
CSRC = HERE.parent / "csrc"

OURS = "import anyaccel; load = anyaccel.get_accelerator().create_op_builder('CPUAdamBuilder').load"
DEEPSPEED = "from deepspeed.ops.op_builder import CPUAdamBuilder; load = CPUAdamBuilder().load"
TORCH = f"""
from torch.utils import cpp_extension
def load():
    return cpp_extension.load(
        "adam_extension", [{str(HERE / "adam_extension.cpp")!r}, {str(CSRC / "adam" / "adam_cpu.cpp")!r}],
        extra_include_paths=[{str(CSRC / "adam")!r}, {str(CSRC / "includes")!r}],
        extra_cflags=["-O3", "-march=native", "-std=c++20"],
    )
"""
CANDIDATES = {"ours": OURS, "cpp_extension.load": TORCH, "deepspeed": DEEPSPEED}
COLUMNS = [
    "what",
    "ours s",
    "cpp_extension.load s",
    "deepspeed s",
    "ours / cpp_extension",
    "ours / deepspeed",
    "target",
]


def seconds(imports: str, cache: Path) -> tuple[float, float]:
    """Time ``load()`` alone, and everything after ``import torch``, in a new process."""
    code = f"""
import torch, time
began = time.perf_counter()
{imports}
started = time.perf_counter()
load()
ended = time.perf_counter()
print("seconds:", ended - started, ended - began)
"""
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # like pip
    environment = {
        **compiled,
        "ANYACCEL_CACHE_DIR": str(cache / "ours"),
        "TORCH_EXTENSIONS_DIR": str(cache / "theirs"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # torch looks for ninja there
    }
    command = [sys.executable, "-W", "ignore", "-c", code]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, encoding="utf-8")
    if finished.returncode != 0:
        raise SystemExit(finished.stderr)
    load_alone, after_torch = finished.stdout.split("seconds:")[1].split()
    return float(load_alone), float(after_torch)


def medians(cache_of_round: list[Path]) -> list[dict[str, float]]:
    """Return each candidate's medians of both times; every round runs each candidate once, in turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in CANDIDATES}
    for cache in cache_of_round:
        for name, imports in CANDIDATES.items():
            times[name].append(seconds(imports, cache))
    return [
        {name: statistics.median(one[which] for one in measured) for name, measured in times.items()}
        for which in (0, 1)
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        caches = [Path(folder) / str(round_) for round_ in range(COLD_ROUNDS)]
        cold, cold_with_imports = medians(caches)
        warm, warm_with_imports = medians(caches[:1] * WARM_ROUNDS)
    rows = []
    for what, times, target in (
        ("empty cache: load()", cold, "1/8 of each"),
        ("empty cache: all after import torch", cold_with_imports, ""),
        ("warm cache: load()", warm, "5 ms; 1/4 of cpp_extension"),
        ("warm cache: all after import torch", warm_with_imports, ""),
    ):
        ours, *theirs = times.values()
        rows.append(
            [what, *(f"{value:.4f}" for value in times.values()), *(f"1/{one / ours:.1f}" for one in theirs), target]
        )
    show("load", "CPUAdam, load(), medians", COLUMNS, rows)


if __name__ == "__main__":
    main()
