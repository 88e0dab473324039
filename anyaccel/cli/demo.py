"""``anyaccel demo``: everything from the device to a trained model."""

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
from .places import require_folder

__all__ = ["EPILOG", "command"]

EPILOG = "Example: [bold]anyaccel demo --text shakespeare.txt --steps 500[/]"


def command(
    text: Annotated[
        Path | None,
        typer.Option(
            help="A text file to learn from; the Python standard library's sources by default.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for the curve, the checkpoint and the metrics.")] = Path(
        "demo_out"
    ),
    steps: Annotated[
        int, typer.Option(min=1, help="The number of steps to train; resumes from a checkpoint in the folder.")
    ] = 300,
    ranks: Annotated[int, typer.Option(min=1, help="The number of processes; on a GPU, at most one per device.")] = 2,
) -> None:
    """Train a small character-level transformer under torchrun, with a kernel that is built on demand.

    Exits with 1 if the final loss is not below that of a unigram model of the same text. Needs ``pip install 'anyaccel[demo]'``.
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
    """Return torch's name for the device, and torch's version."""
    import torch

    accelerator = get_accelerator()
    properties = accelerator.get_device_properties()
    return f"{accelerator.device_name()} ({properties.name}), torch {torch.__version__}; see also: anyaccel report"


def _environment(processes: int) -> dict[str, str]:
    """Return the ranks' environment: cores divided among ranks, and shm on the CPU if it has been built."""
    accelerator = get_accelerator()
    chosen = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // processes))}
    if accelerator.device_name() == "cpu" and processes > 1 and _is_built("ShmCommBuilder"):
        chosen["ANYACCEL_CPU_BACKEND"] = "shm"
    return {**chosen, **inherited_environment()}


def _is_built(builder: str) -> bool:
    try:
        return bool(get_accelerator().create_op_builder(builder).is_built())
    except ToolchainError:  # no compiler could have built it
        return False


def _prepare(text: Path | None, out: Path) -> None:
    """Before any rank starts, do the steps that can fail: read the text, check the checkpoint, build the op."""
    from ..demo.text import Corpus, check_resumable, read_text  # imports torch, which --help does not need

    corpus = Corpus(read_text(text))
    require_folder(out, "--out")
    if (out / "checkpoint.pt").exists():
        check_resumable(out / "checkpoint.pt", corpus)
    builder = get_accelerator().create_op_builder("CPUAdamBuilder")
    if not builder.is_built():
        with Console().status(
            "building the op 'cpu_adam': a few seconds, or about a minute with ziglang the first time"
        ):
            started = time.perf_counter()
            builder.build()
        Console().print(f"built the op 'cpu_adam' in {time.perf_counter() - started:.1f} s")


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run the launcher; an interrupt also reaches it and its ranks, and this waits for their end."""
    with subprocess.Popen(command, env=environment) as launcher:  # noqa: S603
        try:
            return launcher.wait()
        except KeyboardInterrupt:
            launcher.send_signal(signal.SIGINT)
            launcher.wait()
            return 130
