"""``anyaccel demo``: the whole path, from the report to a trained model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..accelerator import get_accelerator
from ..demo.outcome import require_matplotlib, summarize
from .report import show
from .report_data import gather

__all__ = ["EPILOG", "command"]

EPILOG = "Example: [bold]anyaccel demo --text shakespeare.txt --steps 500[/]"


def command(
    text: Annotated[
        Path | None,
        typer.Option(
            help="The text to learn; the Python standard library's sources by default.", exists=True, dir_okay=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the curve, the checkpoint and the metrics go.")] = Path("demo_out"),
    steps: Annotated[
        int, typer.Option(min=1, help="How many steps to train now; a checkpoint found is resumed.")
    ] = 300,
    ranks: Annotated[int, typer.Option(min=1, help="How many processes; at most one a device, but on CPU.")] = 2,
) -> None:
    """Print the report, then train a small character-level transformer under torchrun, with a kernel built on demand.

    Exits with 1 when the loss does not end below that of a unigram model of the same text.
    """
    show(gather(), Console())
    accelerator = get_accelerator()
    processes = ranks if accelerator.device_name() == "cpu" else min(ranks, accelerator.device_count())
    require_matplotlib()
    arguments = ["--out", str(out), "--steps", str(steps)]
    if text is not None:
        arguments += ["--text", str(text)]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    finished = subprocess.run([*launcher, "-m", "anyaccel.demo.train", *arguments], check=False)  # noqa: S603
    raise typer.Exit(0 if finished.returncode == 0 and summarize(out, Console()) else 1)
