"""``deepspeed.initialize`` with ZeRO 2 and CPUAdam offloaded, and a step after it: stock deepspeed, and deepspeed on anyaccel.

Each start is a separate process: the first finds empty caches, the others use what the first has built.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import show

COLD_ROUNDS, WARM_ROUNDS = 2, 5
CANDIDATES = {"ours": "import anyaccel.integrations.deepspeed", "stock": ""}
PROGRAM = """
import json, statistics, time
{first}
import deepspeed, torch
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8)))
config = {{
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-3}}}},
    "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}},
}}
began = time.perf_counter()
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
initialized = time.perf_counter() - began
x, steps = torch.randn(1, 1024), []
for _ in range(25):
    began = time.perf_counter()
    engine.backward(engine(x).square().mean())
    engine.step()
    steps.append(time.perf_counter() - began)
print("measured:", json.dumps([initialized, statistics.median(steps[5:])]))
"""


def seconds(candidate: str, cache: Path) -> tuple[float, float]:
    """Return the time of ``initialize`` in a new process, and of the median step."""
    environment = {
        **os.environ,
        "ANYACCEL_CACHE_DIR": str(cache / "ours"),
        "TORCH_EXTENSIONS_DIR": str(cache / "theirs"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DS_ACCELERATOR": "cpu",
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29571",
    }  # fmt: skip
    code = PROGRAM.format(first=CANDIDATES[candidate])
    command = [sys.executable, "-W", "ignore", "-c", code]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, encoding="utf-8")
    if finished.returncode != 0:
        raise SystemExit(finished.stderr)
    initialized, step = json.loads(finished.stdout.split("measured:")[1].splitlines()[0])
    return initialized, step


def medians(caches: list[Path]) -> dict[str, tuple[float, float]]:
    """Return each candidate's medians; every round runs each candidate once, in turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in CANDIDATES}
    for cache in caches:
        for name in CANDIDATES:
            times[name].append(seconds(name, cache))
    return {
        name: (statistics.median(one[0] for one in found), statistics.median(one[1] for one in found))
        for name, found in times.items()
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        caches = [Path(folder) / str(round_) for round_ in range(COLD_ROUNDS)]
        cold = medians(caches)
        warm = medians(caches[:1] * WARM_ROUNDS)
    rows = []
    for what, times, which, target in (
        ("first initialize, empty caches", cold, 0, "4"),
        ("second initialize, a new process", warm, 0, "3"),
        ("step, 8.4 M parameters", warm, 1, "1"),
    ):
        ours, stock = times["ours"][which], times["stock"][which]
        rows.append([what, f"{ours:.4f}", f"{stock:.4f}", f"{stock / ours:.2f}", target])
    columns = ["what", "ours s", "stock s", "stock / ours", "target"]
    show("deepspeed", "deepspeed.initialize with CPUAdam offloaded, one rank, medians", columns, rows)


if __name__ == "__main__":
    main()
