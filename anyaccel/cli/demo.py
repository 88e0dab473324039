"""``anyaccel demo``: the whole path, from the report to a trained model."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..accelerator import get_accelerator
from ..demo.outcome import require_matplotlib, summarize
from ..op_builder.engine.interpreter import find_python
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
    launcher = [find_python(), "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    _prepare(text, out)
    returncode = _run([*launcher, "-m", "anyaccel.demo.train", *arguments])
    raise typer.Exit(0 if returncode == 0 and summarize(out, Console()) else 1)


def _prepare(text: Path | None, out: Path) -> None:
    """Do once, before any rank starts, what can fail: read the text, check the checkpoint, build the op."""
    from ..demo.text import Corpus, check_resumable, read_text  # imports torch, which --help does without

    corpus = Corpus(read_text(text))
    if (out / "checkpoint.pt").exists():
        check_resumable(out / "checkpoint.pt", corpus)
    builder = get_accelerator().create_op_builder("CPUAdamBuilder")
    if not builder.is_built():
        with Console().status("building the op 'cpu_adam': seconds, or about a minute the first time with ziglang"):
            started = time.perf_counter()
            builder.build()
        Console().print(f"built the op 'cpu_adam' in {time.perf_counter() - started:.1f} s")


def _run(command: list[str]) -> int:
    """Run the launcher; an interrupt reaches it and its ranks, and is waited for."""
    with subprocess.Popen(command) as launcher:  # noqa: S603
        try:
            return launcher.wait()
        except KeyboardInterrupt:
            launcher.send_signal(signal.SIGINT)
            launcher.wait()
            return 130
