"""The first ``ops.rms_norm`` of a process, including the import, against torch's first call and that of ``torch.compile``.

Every time is that of a new process that has imported torch; ours has a warm cache. The import finder of an editable
installation doubles our time: measure an installed wheel.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from harness import show

ROUNDS = 15
INPUTS = "x, w = torch.randn(4, 64), torch.ones(64)"
CANDIDATES = {
    "ours": "from anyaccel import ops; ops.rms_norm(x, w)",
    "torch": "torch.nn.functional.rms_norm(x, w.shape, w)",
    "torch.compile": "torch.compile(torch.nn.functional.rms_norm)(x, w.shape, w)",
}
COUNT = """
import os
calls = 0
def count(frame, event, argument):
    global calls
    calls += event == "call" and f"{os.sep}anyaccel{os.sep}" in frame.f_code.co_filename
sys.setprofile(count)
"""


def run(code: str) -> float:
    """Run a program that prints one number, in a new process."""
    return float(
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, encoding="utf-8"
        ).stdout
    )


def seconds(statement: str) -> float:
    """Time a statement in a process that has imported torch."""
    return run(
        f"import torch, time\n{INPUTS}\nbegan = time.perf_counter()\n{statement}\nprint(time.perf_counter() - began)"
    )


def main() -> None:
    for statement in CANDIDATES.values():  # this fills every cache
        seconds(statement)
    times: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    for _ in range(ROUNDS):
        for name, statement in CANDIDATES.items():
            times[name].append(seconds(statement))
    medians = {name: statistics.median(found) for name, found in times.items()}
    calls = run(f"import sys, torch\n{INPUTS}\n{COUNT}\n{CANDIDATES['ours']}\nsys.setprofile(None)\nprint(calls)")
    row = ["first rms_norm", *(f"{medians[name] * 1e3:.1f}" for name in CANDIDATES), f"{calls:.0f}"]
    columns = ["what", *(f"{name} ms" for name in CANDIDATES), "our Python calls"]
    show("first_call", "The first call of a function in a process that has imported torch, medians", columns, [row])


if __name__ == "__main__":
    main()
