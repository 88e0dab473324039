"""Latency and bandwidth of all_reduce over size, shm, gloo and the memory's limit: writes ``docs/benchmarks/comm.png``."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from bench_comm import measured

mpl.use("Agg")

import matplotlib.pyplot as plt  # after the choice of a backend

PLOT = Path(__file__).parents[1] / "docs" / "benchmarks" / "comm.png"


def main() -> None:
    sizes = {str(8 << shift): 8 << shift for shift in range(0, 24, 3)}
    rows = measured(2, rounds=5, sizes=sizes)
    figure, (latency, bandwidth) = plt.subplots(1, 2, figsize=(11, 4))
    for name, label in (("shm", "shm"), ("gloo", "gloo"), ("limit", "limit: two processes copy")):
        found = [(size, times[name]) for size, (_, _, _, times) in zip(sizes.values(), rows, strict=True)]
        points = [point for point in found if name != "limit" or point[0] > 8]
        latency.plot(*zip(*((size, seconds * 1e6) for size, seconds in points), strict=True), marker="o", label=label)
        bandwidth.plot(
            *zip(*((size, size / seconds / 1e9) for size, seconds in points), strict=True), marker="o", label=label
        )
    latency.set(xscale="log", yscale="log", xlabel="bytes", ylabel="µs", title="all_reduce, float32, 2 ranks")
    bandwidth.set(xscale="log", xlabel="bytes", ylabel="GB/s of payload", title="bandwidth")
    for axes in (latency, bandwidth):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(PLOT, dpi=100)


if __name__ == "__main__":
    main()
