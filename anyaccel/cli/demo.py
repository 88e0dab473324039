"""``anyaccel demo``: the whole path, from the device to a trained model."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..accelerator import get_accelerator
from ..demo.outcome import require_matplotlib, summarize
from ..op_builder.engine.environment import inherited_environment
from ..op_builder.engine.errors import ToolchainError
from ..op_builder.engine.interpreter import find_python

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
    """Train a small character-level transformer under torchrun, with a kernel that is built on demand.

    Exits with 1 when the loss does not end below that of a unigram model of the same text.
    """
    accelerator = get_accelerator()
    processes = ranks if accelerator.device_name() == "cpu" else min(ranks, accelerator.device_count())
    require_matplotlib()
    Console().print(f"device: {_described()}", highlight=False)
    arguments = ["--out", str(out), "--steps", str(steps)]
    if text is not None:
        arguments += ["--text", str(text)]
    launcher = [find_python(), "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    _prepare(text, out)
    returncode = _run([*launcher, "-m", "anyaccel.demo.train", *arguments], _environment(processes))
    raise typer.Exit(0 if returncode == 0 and summarize(out, Console()) else 1)


def _described() -> str:
    """Return the device's name, as torch knows it, and torch's version."""
    import torch

    accelerator = get_accelerator()
    properties = accelerator.get_device_properties()
    return f"{accelerator.device_name()} ({properties.name}), torch {torch.__version__}; more by: anyaccel report"


def _environment(processes: int) -> dict[str, str]:
    """Return the ranks' environment: the cores shared out, and shm between ranks on the CPU where it has been built."""
    accelerator = get_accelerator()
    chosen = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // processes))}
    if accelerator.device_name() == "cpu" and processes > 1 and _is_built("ShmCommBuilder"):
        chosen["ANYACCEL_CPU_BACKEND"] = "shm"
    return {**chosen, **inherited_environment()}


def _is_built(builder: str) -> bool:
    try:
        return bool(get_accelerator().create_op_builder(builder).is_built())
    except ToolchainError:  # nothing that could have built it
        return False


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


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run the launcher; an interrupt reaches it and its ranks, and is waited for."""
    with subprocess.Popen(command, env=environment) as launcher:  # noqa: S603
        try:
            return launcher.wait()
        except KeyboardInterrupt:
            launcher.send_signal(signal.SIGINT)
            launcher.wait()
            return 130
