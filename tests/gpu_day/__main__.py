"""Tests, compute-sanitizer and benchmarks on one GPU, most important first: ``make gpu-day OUT=dir``.

Every stage has a time limit, and writes its results as it goes, so that an interrupted run still has results.

Examples:
    python -m tests.gpu_day --out day
    python -m tests.gpu_day --out day --only bandwidth dense    some stages, again or later
    python -m tests.gpu_day --out rehearsal --device cpu --minutes 5      the same stages on the CPU
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from rich.console import Console

from .sanitizer import sanitized
from .stages import MINUTES, SOME_PASSED, Stage, end_by_sigterm, longer, run_stages

ROOT = Path(__file__).parents[2]
SANITIZED = ("rms_norm", "softmax", "activations", "multi_tensor", "quantization", "moe")
"""Tests of one op of each pattern: rows, reductions with a maximum, tiles, tables of tensors, packed bytes, atomics."""


def _stages(device: str, folder: Path, minutes: float = MINUTES) -> list[Stage]:
    """Return all stages, most important first; their limits together are the day's."""
    most_of_a_test = f"{90 * max(1.0, minutes / MINUTES):.0f}"
    python = sys.executable
    is_cuda = device == "cuda"
    capability = "".join(map(str, torch.cuda.get_device_capability())) if is_cuda else ""
    targets = ["native", f"sm_{capability}"] if is_cuda else ["native"]
    anyaccel = [python, "-c", "from anyaccel.cli import main; main()"]
    # a killed run has listed every test so far, and why it failed; a file that cannot be imported stops no other
    pytest = [python, "-m", "pytest", "-v", "-rN", "--tb", "short", "-p", "tests.gpu_day.at_once"]
    pytest += ["-p", "no:cacheprovider", "--continue-on-collection-errors"]
    pytest += ["-p", "no:benchmark"]  # pytest-benchmark, where it is installed, warns of xdist, and warnings are errors
    # a test that hangs or makes the GPU unusable costs its process, which is replaced; see fresh_worker.py
    replaced = ["-n", "1", "--max-worker-restart", "50", "-p", "tests.gpu_day.fresh_worker"]
    tests = [
        *pytest,
        *replaced,
        "--timeout",
        most_of_a_test,
        "--timeout-method",
        "thread",
        f"--junitxml={folder}/tests.xml",
    ]
    files = [f"tests/ops/test_{op}.py" for op in SANITIZED]
    sanitized_tests = [*pytest, "-o", "faulthandler_timeout=60", "-k", "cuda and not compile", *files]
    lacking = "" if is_cuda else "it needs a GPU"

    def benchmark(topic: str, seconds: float) -> Stage:
        program = [python, f"benchmarks/bench_{topic}.py", "--device", device, "--results", str(folder / "results")]
        return Stage(topic, program, seconds)

    return [
        Stage("report", [*anyaccel, "report"], 30),
        Stage("build", [*anyaccel, "build", "--all", *(word for one in targets for word in ("--target", one))], 170),
        Stage("tests", [*tests, "-k", device, "tests/ops", "tests/accelerator"], 250, proofs=(SOME_PASSED,)),
        sanitized("memcheck", sanitized_tests, 140, lacking),
        benchmark("bandwidth", 240),
        benchmark("optimizers", 80),
        sanitized("racecheck", sanitized_tests, 110, lacking),
        sanitized("synccheck", sanitized_tests, 80, lacking),
        benchmark("quantization", 50),
        benchmark("dense", 50),
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu_day", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder for logs, results and day.json")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu rehearses the stages")
    parser.add_argument(
        "--minutes",
        type=float,
        default=float(MINUTES),
        help="of all stages together; more than 20 also lengthen each stage's limit",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="STAGE", help="the stages to run; day.json keeps the others' outcomes"
    )
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("running the day failed: got no GPU; expected one that torch can use. Fix: --device cpu rehearses it.")
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stages = longer(_stages(options.device, folder, options.minutes), options.minutes)
    names = [stage.name for stage in stages]
    if unknown := set(options.only or ()) - set(names):
        parser.error(f"--only got {', '.join(sorted(unknown))}; expected {', '.join(names)}")
    chosen = [stage for stage in stages if stage.name in (options.only or names)]
    end_by_sigterm()
    console = Console(highlight=False, width=200)
    has_failed = False
    try:
        for outcome in run_stages(chosen, folder, ROOT, options.minutes * 60):
            line = f"{outcome.name:<14} {outcome.seconds:>6.1f} s  {outcome.what}  {outcome.summary}"
            console.print(line.rstrip(), markup=False)
            has_failed |= outcome.what.startswith("failed")
    except KeyboardInterrupt:
        console.print("interrupted")
        has_failed = True
    console.print(f"logs, results and day.json are in {options.out}")
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
