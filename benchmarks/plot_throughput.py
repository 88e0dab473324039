"""Throughput over size, ours and peers: writes ``docs/benchmarks/<kernel>.png``."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import torch
from bench_kernels import CASES, step
from harness import interleaved, keep_memory

mpl.use("Agg")

import matplotlib.pyplot as plt  # after the choice of a backend

ROWS = (64, 256, 1024, 4096, 16384)
COLUMNS = 1024
PLOTTED = ("RMSNorm", "LayerNorm", "softmax", "SwiGLU", "GeGLU", "bias-GELU", "rotary embedding")
PLOTS = Path(__file__).parents[1] / "docs" / "benchmarks"


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    PLOTS.mkdir(exist_ok=True)
    for name in PLOTTED:
        case = CASES[name]
        rates: dict[str, list[float]] = {"ours": [], "eager": [], "compile": []}
        sizes = []
        for rows in ROWS:
            torch._dynamo.reset()
            inputs = case.inputs(rows, COLUMNS, device)
            candidates = {"ours": case.ours, "eager": case.eager, "compile": torch.compile(case.eager)}
            times = interleaved({key: step(call, inputs) for key, call in candidates.items()}, rounds=9)
            moved = case.moved * rows * COLUMNS * 4
            sizes.append(moved / 1e6)
            for key, found in rates.items():
                found.append(moved / times[key] / 1e9)
        figure, axes = plt.subplots(figsize=(6, 4))
        for key, found in rates.items():
            axes.plot(sizes, found, marker="o", label=key)
        axes.set(
            xscale="log", xlabel="MB moved, forward and backward", ylabel="GB/s", title=f"{name}, float32, {device}"
        )
        axes.set_ylim(bottom=0)
        axes.legend()
        figure.tight_layout()
        suffix = "" if device == "cpu" else f"_{device}"
        figure.savefig(PLOTS / f"{name.lower().replace(' ', '_')}{suffix}.png", dpi=100)
        plt.close(figure)


if __name__ == "__main__":
    main()
