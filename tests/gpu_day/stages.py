"""Runs stages one after another within a time limit, and records the outcome of each as soon as it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["MINUTES", "SOME_PASSED", "Outcome", "Stage", "end_by_sigterm", "longer", "run_stages"]

MINUTES = 20
"""The length of a day for which the stages' limits are meant."""
TO_END = 10.0
"""Seconds between Ctrl-C and SIGKILL at a stage's limit: pytest lists its failures and writes its results."""
SUMMARY = re.compile(
    r"=========\s((?:ERROR|RACECHECK) SUMMARY: .*)|"
    r"^(?:=+\s)?(\d+ (?:failed|passed|skipped|deselected|xfailed|errors?)\b.*? in [\d.]+s)",
    re.MULTILINE,
)
"""What compute-sanitizer and pytest print at the end."""
SOME_PASSED = r"^(?:=+ )?\d+ passed\b"
"""In a log of pytest without failures; if all tests were skipped, nothing was tested."""


class Stage(NamedTuple):
    """A command with a limit.

    Attributes:
        name: the name of its log, ``<name>.log``.
        command: the command to run, in the checkout.
        seconds: its time limit.
        left_out: why it cannot run here; empty when it can.
        proofs: patterns of lines that its log has if it did its work; exit code 0 alone proves nothing.
        finding: a pattern of what its log has if it found errors, whatever its exit code.
    """

    name: str
    command: Sequence[str]
    seconds: float
    left_out: str = ""
    proofs: Sequence[str] = ()
    finding: str = ""


class Outcome(NamedTuple):
    """The outcome of a stage.

    Attributes:
        name: the stage's.
        what: ``passed``, ``failed: it found errors``, ``failed with exit code 1``, ``cut after 60 s``, ``left out: ...``;
            in ``day.json`` also ``running`` and ``interrupted``.
        seconds: how long it ran.
        summary: what pytest or compute-sanitizer printed at the end, if anything.
    """

    name: str
    what: str
    seconds: float
    summary: str = ""


def longer(stages: Sequence[Stage], minutes: float) -> list[Stage]:
    """Return stages with limits for a longer day, as on a slow machine; a shorter one leaves them, and leaves out the last."""
    return [stage._replace(seconds=stage.seconds * max(1.0, minutes / MINUTES)) for stage in stages]


def end_by_sigterm() -> None:
    """Make SIGTERM act as Ctrl-C: it ends the stage's processes, and ``day.json`` says so."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def run_stages(stages: Sequence[Stage], folder: Path, root: Path, most_seconds: float) -> Iterator[Outcome]:
    """Run each stage, even after failures; ``day.json`` contains the outcomes so far, and earlier ones of other stages.

    Args:
        stages: most important first, as the time may not suffice for all.
        folder: where to write logs and ``day.json``.
        root: the working directory of the commands.
        most_seconds: the time limit for all stages together.
    """
    record = folder / "day.json"
    earlier = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else []
    names = {stage.name for stage in stages}
    outcomes = {row["name"]: Outcome(**row) for row in earlier if row["name"] not in names}

    def write(outcome: Outcome) -> None:
        outcomes[outcome.name] = outcome
        unfinished = record.with_suffix(".part")
        unfinished.write_text(
            json.dumps([one._asdict() for one in outcomes.values()], indent=1) + "\n", encoding="utf-8"
        )
        unfinished.replace(record)

    ends = time.monotonic() + most_seconds
    for stage in stages:
        began = time.monotonic()
        write(Outcome(stage.name, "running", 0.0))
        try:
            outcome = _run(stage, folder, root, ends - began)
        except BaseException:  # such as Ctrl-C
            write(Outcome(stage.name, "interrupted", round(time.monotonic() - began, 1), _summary(stage, folder)))
            raise
        write(outcome)
        yield outcome


def _run(stage: Stage, folder: Path, root: Path, rest: float) -> Outcome:
    if stage.left_out or rest < 1:
        return Outcome(stage.name, f"left out: {stage.left_out or 'no time is left'}", 0.0)
    limit = min(stage.seconds, rest)
    to_end = min(TO_END, limit / 2)
    began = time.monotonic()
    with (folder / f"{stage.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*stage.command],
            cwd=root,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},  # the log of a stage that is cut has all that it printed
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit - to_end)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(to_end)
        finally:  # also after Ctrl-C
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = (folder / f"{stage.name}.log").read_text(encoding="utf-8", errors="replace")
    return Outcome(
        stage.name, _what(stage, code, limit, text), round(time.monotonic() - began, 1), _summary(stage, folder)
    )


def _what(stage: Stage, code: int | None, limit: float, log: str) -> str:
    has_found = bool(stage.finding) and re.search(stage.finding, log) is not None
    if code is None:
        return f"{'failed: it found errors, and was ' if has_found else ''}cut after {limit:.0f} s"
    if has_found or code != 0:
        return "failed: it found errors" if has_found else f"failed with exit code {code}"
    lacking = [proof for proof in stage.proofs if not re.search(proof, log, re.MULTILINE)]
    return f"failed: its log has no line like {lacking[0]}" if lacking else "passed"


def _summary(stage: Stage, folder: Path) -> str:
    log = folder / f"{stage.name}.log"
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return "; ".join(filter(None, (word for words in SUMMARY.findall(text) for word in words)))
