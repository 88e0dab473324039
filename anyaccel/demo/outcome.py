"""The results of a training run: the metrics, the loss curve, and whether it learned."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

from ..accelerator.errors import AnyaccelError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

__all__ = ["DemoError", "plot", "require_matplotlib", "summarize", "write_metrics"]


class DemoError(AnyaccelError):
    """Raised when the demo cannot run."""


def require_matplotlib() -> None:
    """Raise DemoError before any work if the loss curve cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        msg = "drawing the loss curve failed: matplotlib is not installed. Fix: pip install 'anyaccel[demo]'."
        raise DemoError(msg)


def write_metrics(folder: Path, metrics: dict[str, Any]) -> None:
    """Write ``metrics.json`` and ``loss.png`` into a folder."""
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=2), encoding="utf-8")
    plot(metrics, folder / "loss.png")


def plot(metrics: dict[str, Any], file: Path) -> None:
    """Draw the loss over steps, against the unigram model's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*metrics["training"], strict=True), linewidth=0.8, alpha=0.6, label="training")
    axes.plot(*zip(*metrics["validation"], strict=True), marker="o", markersize=3, label="validation")
    axes.axhline(metrics["unigram_loss"], linestyle="--", color="grey", label="unigram model, validation")
    axes.set(xlabel="step", ylabel="loss (nats per character)", title=f"Character transformer on {metrics['device']}")
    axes.legend()
    figure.savefig(file, dpi=120)


def summarize(folder: Path, console: Console) -> bool:
    """Print the result of a run and where it is stored; return whether it beat the unigram model."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    loss, unigram = metrics["validation"][-1][1], metrics["unigram_loss"]
    learned = bool(loss < unigram)
    verdict = "[green]below[/]" if learned else "[red]not below[/]"
    console.print(
        f"validation loss {loss:.3f}, {verdict} the unigram model's {unigram:.3f} nats per character; "
        f"{metrics['tokens_per_second']:,.0f} tokens/s on {metrics['ranks']} x {metrics['device']} over {metrics['backend']}"
    )
    console.print(
        f"curve {folder / 'loss.png'}, checkpoint {folder / 'checkpoint.pt'}, metrics {folder / 'metrics.json'}"
    )
    faster = (
        " · anyaccel build shm_comm, faster ranks on a CPU"
        if metrics["device"] == "cpu" and metrics["backend"] != "shm"
        else ""
    )
    console.print(f"next: anyaccel check FOLDER finds code tied to CUDA · anyaccel doctor checks the compilers{faster}")
    return learned
