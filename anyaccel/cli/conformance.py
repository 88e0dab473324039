"""``anyaccel conformance``: checks an accelerator against the contract, and its device against the CPU with torch's own cases."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from pathlib import Path  # noqa: TC003  # typer reads the annotation
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from .conformance_report import Conformance, write_report
from .page import require_writable

if TYPE_CHECKING:
    from ..testing.torch_tests import TorchTest

__all__ = ["EPILOG", "command"]

EPILOG = "Example: [bold]anyaccel conformance my_package:MyAccelerator --report out.html --report out.json[/]"
_COLOURS = {
    "ok": "green",
    "unsupported": "yellow",
    "wrong": "red",
    "crashed": "red",
    "timed out": "red",
    "skipped": "dim",
}
_FORMATS = (".html", ".json")


def command(
    target: Annotated[str, typer.Argument(metavar="PACKAGE.MODULE:CLASS", help="The accelerator class to check.")],
    report: Annotated[
        list[Path] | None,
        typer.Option(
            help="Also run torch's own cases on the device, and write all results to this .html or .json file."
        ),
    ] = None,
    tests: Annotated[str, typer.Option(metavar="PATTERN", help="Which of torch's cases to run.")] = "*",
    dtype: Annotated[
        list[str] | None, typer.Option(help="Run ops with this dtype, instead of one dtype of each op's.")
    ] = None,
    limit: Annotated[float, typer.Option(min=1.0, help="Stop a check or a test after this many seconds.")] = 60.0,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="How many processes run tests at a time.")] = 1,
) -> None:
    """Check every member of an accelerator class, and with --report the ops of its device.

    Exits with 1 if a member or a result is wrong, or a test crashed or hung; with 2 if the class cannot be checked here.
    """
    from ..testing.target import accelerator_of  # imports torch, which --help does not need
    from ..testing.torch_tests import check_members, run_torch_tests

    reports = report or []
    _require_formats(reports)
    _require_report(reports, is_for_cases=tests != "*" or bool(dtype) or jobs != 1)
    dtypes = _known(dtype or [])
    sys.path.insert(0, "")  # a module in the current folder serves, as it does in the processes of the checks
    console = Console()
    results = check_members(
        target, limit_seconds=limit
    )  # first: a class that crashes when it is made ends only its process
    accelerator = accelerator_of(target)
    columns = (Column(name, overflow="fold") for name in ("member", "outcome", "why"))
    table = Table(*columns, title=escape(target), title_justify="left")
    for result in results:
        table.add_row(result.member, _coloured(result.outcome.value), escape(_brief(result.why)))
    console.print(table)
    console.print(_counted(Counter(result.outcome.value for result in results), tuple(_COLOURS)[:-1]))
    found = Conformance(target, accelerator.device_name(), results)
    if reports:
        progress = _Progress(Console(stderr=True))
        found.torch_tests = run_torch_tests(
            target, pattern=tests, dtypes=dtypes, limit_seconds=limit, jobs=jobs, progress=progress.show
        )
        console.print(
            "torch's cases: " + _counted(Counter(test.outcome for test in found.torch_tests), tuple(_COLOURS))
        )
        for path in reports:
            write_report(path, found)
            console.print(f"wrote {escape(str(path))}", soft_wrap=True)
    raise typer.Exit(1 if found.is_wrong else 0)


def _brief(why: str) -> str:
    """Return the beginning of a reason: torch lists every backend when one lacks a kernel."""
    return textwrap.shorten(why.partition("\n")[0], 240, placeholder=" …")


class _Progress:
    """Shows each test that is not right, and how far the run is where a person watches."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done = 0

    def show(self, test: TorchTest, count: int) -> None:
        self._done += 1
        if test.outcome in ("wrong", "crashed", "timed out"):
            said = f"{_coloured(test.outcome)} {escape(test.name)}: {escape(test.why.splitlines()[0][:160])}"
            self._console.print(said, highlight=False, soft_wrap=True)
        if self._console.is_terminal:
            sys.stderr.write(f"\r{self._done} of about {count} tests" + ("\n" if self._done == count else ""))
            sys.stderr.flush()


def _require_report(reports: list[Path], *, is_for_cases: bool) -> None:
    if is_for_cases and not reports:
        msg = (
            "choosing the tests failed: --tests, --dtype and --jobs are for torch's cases. Fix: add --report out.html."
        )
        raise typer.BadParameter(msg, param_hint="--report")


def _require_formats(reports: list[Path]) -> None:
    for path in reports:
        if path.suffix not in _FORMATS:
            msg = (
                f"writing the report failed: got {path.name}; expected a name that ends in .html or .json. "
                "Fix: write --report out.html."
            )
            raise typer.BadParameter(msg, param_hint="--report")
        require_writable(path)


def _known(dtypes: list[str]) -> list[str]:
    import torch

    for name in dtypes:
        if not isinstance(getattr(torch, name, None), torch.dtype):
            msg = f"choosing the tests failed: got {name!r}; expected a dtype of torch. Fix: write --dtype bfloat16."
            raise typer.BadParameter(msg, param_hint="--dtype")
    return dtypes


def _coloured(outcome: str) -> str:
    return f"[{_COLOURS[outcome]}]{outcome}[/]"


def _counted(counts: Counter[str], outcomes: tuple[str, ...]) -> str:
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in outcomes)
