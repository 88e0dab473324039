"""The CPU kernels of this tree against those of another, such as an earlier commit's, in turn.

``python benchmarks/compare_versions.py OTHER`` takes a checkout whose ``.venv`` is set up (``make .venv/.installed-test``).
Each tree has a process of its own, with its own package, binaries and cases; only one of them works at a time. A row that is
slower or faster than ``NOISE`` is measured again, with three times as many rounds.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = [(1024, 768), (4096, 1024), (2048, 4096)]
DTYPES = ["float32", "bfloat16", "float16"]
NOISE = 1.05
ROUNDS = 15


def calls() -> dict[str, Callable[[], Callable[[], object]]]:
    """Return functions that prepare what is timed, by name. The modules are those of the tree that serves."""
    import torch
    from bench_kernels import cases, step
    from bench_optimizers import CASES, stepper

    from anyaccel import ops

    def kernel(case: Any, shape: tuple[int, int], dtype: torch.dtype) -> Callable[[], object]:
        inputs = [
            tensor.detach().to(dtype).requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor
            for tensor in case.inputs(*shape, "cpu")
        ]
        return step(case.ours, inputs)

    def quantizer(dtype: torch.dtype, bits: int, back: bool) -> Callable[[], object]:
        x = torch.randn(1 << 12, 1 << 10).to(dtype)
        q, params = ops.quantize(x, 1 << 12, bits)
        return (
            (lambda: ops.dequantize(q, params, bits, dtype=dtype)) if back else (lambda: ops.quantize(x, 1 << 12, bits))
        )

    found: dict[str, Callable[[], Callable[[], object]]] = {}
    for title, case in cases().items():
        for name in DTYPES:
            for shape in SHAPES:
                key = f"{title} | {name} | {shape[0]} x {shape[1]}"
                found[key] = partial(kernel, case, shape, getattr(torch, name))
    for title, (ours, _, _) in CASES.items():
        found[f"{title} | float32 | GPT-2 small"] = partial(stepper, ours, "cpu")
    for name in DTYPES:
        for bits in (8, 4):
            for back in (False, True):
                key = f"{'de' * back}quantize to int{bits} | {name} | 4096 x 1024"
                found[key] = partial(quantizer, getattr(torch, name), bits, back)
    return found


def serve() -> None:
    """Answer lines of JSON: the names, or a name to prepare, or the time of a call of what was prepared last."""
    prepare, call = calls(), None
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        if asked == "names":
            answer: object = list(prepare)
        elif asked == "time":
            assert call is not None
            call()
            started = time.perf_counter()
            call()
            answer = time.perf_counter() - started
        else:
            call = None
            try:
                call = prepare[asked]()
                call()
                answer = ""
            except RuntimeError as error:  # the op refuses the dtype
                answer = f"{type(error).__name__}: {error}".partition("\n")[0]
        print(json.dumps(answer), file=answers, flush=True)


class Tree:
    """A checkout's process."""

    def __init__(self, root: Path) -> None:
        # An idle process must not spin: it would take a core from the other.
        environment = {
            **os.environ,
            "OMP_WAIT_POLICY": "passive",
            "ANYACCEL_CACHE_DIR": str(root / ".venv" / "versions"),
        }
        environment |= {"MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_MMAP_THRESHOLD_": str(1 << 34)}
        program = [str(root / ".venv/bin/python"), str(Path(__file__).resolve()), "--serve", str(root / "benchmarks")]
        self._process = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
            cwd=root,
        )

    def ask(self, question: str) -> Any:
        """Return the process's answer."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the process of {self._process.args} ended while it was asked for {question!r}")
        return json.loads(answer)


def compare(trees: dict[str, Tree], rounds: int) -> dict[str, float]:
    """Return each tree's median time of a call."""
    times: dict[str, list[float]] = {name: [] for name in trees}
    order = list(trees)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            times[name].append(trees[name].ask("time"))
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    from harness import show

    other = Path(sys.argv[1]).resolve()
    trees = {"before": Tree(other), "now": Tree(Path(__file__).resolve().parents[1])}
    names = trees["now"].ask("names")
    known = set(trees["before"].ask("names"))
    rows = []
    for name in names:
        if name not in known:
            continue
        failed = [f"{tree}: {problem}" for tree, process in trees.items() if (problem := process.ask(name))]
        if failed:
            print(name, "left out:", "; ".join(failed))
            continue
        times = compare(trees, ROUNDS)
        if not 1 / NOISE < times["before"] / times["now"] < NOISE:
            times = compare(trees, 3 * ROUNDS)
        ratio = times["before"] / times["now"]
        rows.append([*name.split(" | "), *(f"{times[tree] * 1e3:.2f}" for tree in trees), f"{ratio:.2f}"])
        print(rows[-1], flush=True)
    show(
        "versions",
        f"The CPU kernels at {other.name} and now, medians",
        ["call", "dtype", "shape", "before ms", "now ms", "before / now"],
        rows,
    )


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        sys.path[0] = sys.argv[2]
        serve()
    else:
        main()
