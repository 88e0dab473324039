"""Draws the results of ``bench_bandwidth.py`` so far: bandwidth by kernel, for ours, each peer and the copy.

Example:
    python benchmarks/plot_bandwidth.py day/results/bandwidth_cuda.json      writes bandwidth_cuda.png next to it
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt  # after the choice of a backend

__all__ = ["draw", "rates"]


def rates(row: dict[str, str]) -> dict[str, float]:
    """Return the GB/s of each candidate of a row, forward and backward, and of the copy."""
    ours_ms, ours = float(row["ours ms"]), float(row["GB/s"])
    found = {
        column.removesuffix(" ms"): ours * ours_ms / float(value)
        for column, value in row.items()
        if column.endswith(" ms") and not column.endswith("forward ms") and value != "-"
    }
    return {**found, "copy": 100 * ours / float(row["of the limit"].rstrip("%"))}


def draw(results: Path) -> Path:
    """Draw the results of a file; return the path of the picture, which is next to it."""
    content = json.loads(results.read_text(encoding="utf-8"))
    rows = {f"{row['kernel']}\n{row['dtype']}": rates(row) for row in content["rows"]}
    names = dict.fromkeys(name for found in rows.values() for name in found)
    width = 0.8 / len(names)
    figure, axes = plt.subplots(figsize=(max(6.0, 1.2 * len(rows)), 4.5))
    for number, name in enumerate(names):
        places = [place + number * width for place, found in enumerate(rows.values()) if name in found]
        axes.bar(places, [found[name] for found in rows.values() if name in found], width, label=name)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(rows))], list(rows), fontsize=7)
    axes.set(ylabel="GB/s, forward and backward")
    axes.set_title(content["title"], fontsize=8)
    axes.legend(fontsize=7)
    figure.tight_layout()
    picture = results.with_suffix(".png")
    figure.savefig(picture, dpi=120)
    plt.close(figure)
    return picture


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(draw(Path(argument)))
