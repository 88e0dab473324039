"""Runs stages one after another within a time limit, and records the outcome of each as soon as it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["MINUTES", "Outcome", "Stage", "longer", "run_stages"]

MINUTES = 20
"""The length of a day for which the stages' limits are meant."""


class Stage(NamedTuple):
    """A command with a limit.

    Attributes:
        name: the name of its log, ``<name>.log``.
        command: the command to run, in the checkout.
        seconds: its time limit.
        left_out: why it cannot run here; empty when it can.
    """

    name: str
    command: Sequence[str]
    seconds: float
    left_out: str = ""


class Outcome(NamedTuple):
    """The outcome of a stage: ``passed``, ``failed with exit code 1``, ``cut after 60 s`` or ``left out: ...``."""

    name: str
    what: str
    seconds: float


def longer(stages: Sequence[Stage], minutes: float) -> list[Stage]:
    """Return stages with limits for a longer day, as on a slow machine; a shorter one leaves them, and leaves out the last."""
    return [stage._replace(seconds=stage.seconds * max(1.0, minutes / MINUTES)) for stage in stages]


def run_stages(stages: Sequence[Stage], folder: Path, root: Path, most_seconds: float) -> Iterator[Outcome]:
    """Run each stage, even after failures; ``day.json`` contains the outcomes so far.

    Args:
        stages: most important first, as the time may not suffice for all.
        folder: where to write logs and ``day.json``.
        root: the working directory of the commands.
        most_seconds: the time limit for all stages together.
    """
    outcomes: list[Outcome] = []
    ends = time.monotonic() + most_seconds
    for stage in stages:
        outcome = _run(stage, folder, root, ends - time.monotonic())
        outcomes.append(outcome)
        text = json.dumps([one._asdict() for one in outcomes], indent=1)
        (folder / "day.json").write_text(text + "\n", encoding="utf-8")
        yield outcome


def _run(stage: Stage, folder: Path, root: Path, rest: float) -> Outcome:
    if stage.left_out or rest < 1:
        return Outcome(stage.name, f"left out: {stage.left_out or 'no time is left'}", 0.0)
    limit = min(stage.seconds, rest)
    began = time.monotonic()
    with (folder / f"{stage.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*stage.command], cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # also after Ctrl-C
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    what = f"cut after {limit:.0f} s" if code is None else f"failed with exit code {code}" if code else "passed"
    return Outcome(stage.name, what, round(time.monotonic() - began, 1))
