"""Tests, compute-sanitizer and benchmarks on one GPU, most important first: ``make gpu-day OUT=dir``.

Every stage has a time limit, and writes its results as it goes, so that an interrupted run still has results.

Examples:
    python -m tests.gpu_day --out day
    python -m tests.gpu_day --out rehearsal --device cpu --minutes 5      the same stages on the CPU
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import torch
from rich.console import Console

from .stages import Stage, longer, run_stages

ROOT = Path(__file__).parents[2]
SANITIZED = ("rms_norm", "softmax", "activations", "multi_tensor", "quantization", "moe")
"""Tests of one op of each pattern: rows, reductions with a maximum, tiles, tables of tensors, packed bytes, atomics."""
TOOLS = ("memcheck", "racecheck", "synccheck")
BENCHMARKS = {"bandwidth": 300, "optimizers": 120, "quantization": 60, "dense": 90}


def _stages(device: str, folder: Path) -> list[Stage]:
    python = sys.executable
    is_cuda = device == "cuda"
    capability = "".join(map(str, torch.cuda.get_device_capability())) if is_cuda else ""
    targets = ["native", f"sm_{capability}"] if is_cuda else ["native"]
    anyaccel = [python, "-c", "from anyaccel.cli import main; main()"]
    # a file that cannot be imported here, because a package is missing, must not stop the others
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", "-k"]
    sanitizer = shutil.which("compute-sanitizer") if is_cuda else None
    lacking = "" if sanitizer else "compute-sanitizer is not installed" if is_cuda else "it needs a GPU"
    files = [f"tests/ops/test_{op}.py" for op in SANITIZED]
    return [
        Stage("report", [*anyaccel, "report"], 60),
        Stage("build", [*anyaccel, "build", "--all", *(word for one in targets for word in ("--target", one))], 240),
        Stage("tests", [*tests, device, f"--junitxml={folder}/tests.xml", "tests/ops", "tests/accelerator"], 300),
        *(_benchmark(topic, seconds, device, folder) for topic, seconds in BENCHMARKS.items()),
        *(
            Stage(
                tool,
                [str(sanitizer), "--tool", tool, "--error-exitcode", "1", *tests, "cuda and not compile", *files],
                120,
                lacking,
            )
            for tool in TOOLS
        ),
    ]


def _benchmark(topic: str, seconds: float, device: str, folder: Path) -> Stage:
    command = [sys.executable, f"benchmarks/bench_{topic}.py", "--device", device, "--results", str(folder / "results")]
    return Stage(topic, command, seconds)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu_day", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder for logs, results and day.json")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu rehearses the stages")
    parser.add_argument(
        "--minutes",
        type=float,
        default=20.0,
        help="of all stages together; more than 20 also lengthen each stage's limit",
    )
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("running the day failed: got no GPU; expected one that torch can use. Fix: --device cpu rehearses it.")
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    has_failed = False
    stages = longer(_stages(options.device, folder), options.minutes)
    for outcome in run_stages(stages, folder, ROOT, options.minutes * 60):
        console.print(f"{outcome.name:<14} {outcome.seconds:>6.1f} s  {outcome.what}")
        has_failed |= outcome.what.startswith("failed")
    console.print(f"logs, results and day.json are in {options.out}")
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
