"""``anyaccel bench``: runs the benchmarks on this machine, ours against the installed peers."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from ..accelerator.errors import AnyaccelError
from ..benchmarks.suite import SUITE
from ..op_builder.engine.interpreter import find_python
from .page import Bar, Page, require_writable, write

if TYPE_CHECKING:
    from ..benchmarks.suite import Benchmark

__all__ = ["EPILOG", "BenchmarkError", "command"]

EPILOG = "Example: [bold]anyaccel bench kernels comm --html bench.html[/]"


class BenchmarkError(AnyaccelError, ValueError):
    """Raised when the requested benchmarks cannot be run."""


@dataclass(frozen=True)
class BenchOutcome:
    """The outcome of a benchmark: its results, or the reason why there are none."""

    benchmark: Benchmark
    results: dict[str, Any] | None
    why: str = ""


def command(
    topics: Annotated[
        list[str] | None, typer.Argument(help="The benchmarks to run; all by default.", show_default=False)
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write one self-contained HTML page with plots.")] = None,
    results: Annotated[Path | None, typer.Option(help="Keep the results as JSON files in this folder.")] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the benchmarks and how long each takes.")] = False,
) -> None:
    """Run the benchmarks on this machine, each in its own process. Ctrl-C stops and shows the finished ones."""
    chosen = _chosen(topics or [])
    console = Console(soft_wrap=True, highlight=False)
    if only_list:
        console.print(_listed(chosen))
        return
    if html is not None:
        require_writable(html)
    missing = {benchmark.topic: lacking for benchmark in chosen if (lacking := _lacking(benchmark))}
    minutes = sum(benchmark.seconds for benchmark in chosen if benchmark.topic not in missing) / 60
    console.print(
        f"{len(chosen) - len(missing)} of {len(chosen)} benchmarks can run here, about {minutes:.0f} min on two cores; "
        f"stop other work first. Ctrl-C stops and shows the finished ones."
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: finished ones are shown
    with tempfile.TemporaryDirectory(prefix="anyaccel-bench-") as scratch:
        outcomes = _run_all(chosen, missing, results or Path(scratch), console)
    if html is not None:
        write(html, _page(outcomes))
        console.print(f"wrote {escape(str(html))}")
    failed = [outcome for outcome in outcomes if outcome.results is None and outcome.benchmark.topic not in missing]
    raise typer.Exit(1 if failed or len(outcomes) < len(chosen) else 0)


def _chosen(topics: list[str]) -> list[Benchmark]:
    known = {benchmark.topic: benchmark for benchmark in SUITE}
    unknown = [topic for topic in topics if topic not in known]
    if unknown:
        msg = (
            f"choosing benchmarks failed: got {', '.join(unknown)}; expected some of {', '.join(known)}. "
            f"Fix: pass these names, or none to run all."
        )
        raise BenchmarkError(msg)
    return [benchmark for benchmark in SUITE if not topics or benchmark.topic in topics]


def _lacking(benchmark: Benchmark) -> str:
    lacking = [package for package in benchmark.needs if not _is_installed(package)]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def _run_all(chosen: list[Benchmark], missing: dict[str, str], folder: Path, console: Console) -> list[BenchOutcome]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"writing the results failed: {error}. Fix: choose another folder for --results."
        raise BenchmarkError(msg) from error
    outcomes: list[BenchOutcome] = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(chosen))
        for benchmark in chosen:
            progress.update(task, description=f"{benchmark.topic}, about {benchmark.seconds} s")
            why = missing.get(benchmark.topic, "")
            try:
                outcome = BenchOutcome(benchmark, None, why) if why else _run(benchmark, folder)
            except KeyboardInterrupt:
                console.print(f"stopped during {benchmark.topic}")
                break
            outcomes.append(outcome)
            progress.advance(task)
            console.print(_table(outcome))
    return outcomes


def _run(benchmark: Benchmark, folder: Path) -> BenchOutcome:
    found = importlib.util.find_spec("anyaccel.benchmarks")
    assert found is not None  # noqa: S101  # its table has been imported
    assert found.submodule_search_locations  # noqa: S101  # it is a package
    script = Path(found.submodule_search_locations[0]) / f"bench_{benchmark.topic}.py"
    written = folder / f"{benchmark.topic}.json"
    written.unlink(missing_ok=True)
    began = time.perf_counter()
    command = [find_python(), str(script), "--results", str(folder.resolve())]
    code, said = _finished(command)
    if code == 0 and written.exists():
        results = {**json.loads(written.read_text(encoding="utf-8")), "seconds": time.perf_counter() - began}
        return (
            BenchOutcome(benchmark, results) if results["rows"] else BenchOutcome(benchmark, None, "measured nothing")
        )
    return BenchOutcome(benchmark, None, f"failed with exit code {code}: {said}")


def _finished(command: list[str]) -> tuple[int, str]:
    """Run a program, or on an interrupt end it and its children; return its exit code and its last line."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, encoding="utf-8")  # noqa: S603
    try:
        printed, complained = process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, (complained.strip() or printed.strip() or "it wrote no results").splitlines()[-1]


def _listed(chosen: list[Benchmark]) -> Table:
    table = Table("topic", "what", "about s", "here")
    for benchmark in chosen:
        table.add_row(benchmark.topic, benchmark.about, str(benchmark.seconds), _lacking(benchmark) or "can run")
    return table


def _table(outcome: BenchOutcome) -> Table | str:
    if outcome.results is None:
        return f"[bold]{outcome.benchmark.topic}[/]: [yellow]{escape(outcome.why)}[/]\n"
    rows: list[dict[str, str]] = outcome.results["rows"]
    title = f"{outcome.results['title']} ({outcome.results['seconds']:.0f} s)"
    columns = [Column(escape(name), overflow="fold") for name in rows[0]]
    table = Table(*columns, title=escape(title), title_justify="left", title_style="bold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row.values()))
    return table


def _page(outcomes: list[BenchOutcome]) -> Page:
    machine: dict[str, str] = next((outcome.results["machine"] for outcome in outcomes if outcome.results), {})
    day = time.strftime("%Y-%m-%d")
    page = Page("anyaccel bench", " · ".join([day, *(f"{name} {value}" for name, value in machine.items())]))
    for outcome in outcomes:
        _add_section(page, outcome)
    return page


def _add_section(page: Page, outcome: BenchOutcome) -> None:
    benchmark, results = outcome.benchmark, outcome.results
    if results is None:
        page.section(benchmark.topic, f"{benchmark.about}: {outcome.why}")
        return
    page.section(benchmark.topic, f"{results['title']}. anyaccel bench {benchmark.topic}, {results['seconds']:.0f} s")
    rows: list[dict[str, str]] = results["rows"]
    groups = [(", ".join(row[name] for name in benchmark.label), _bars(benchmark, row)) for row in rows]
    drawn = [(label, bars) for label, bars in groups if len(bars) > 1]
    if drawn:
        page.bars("Shorter is better; each group is drawn to its own longest bar.", drawn)
    page.table(list(rows[0]), [list(row.values()) for row in rows])


def _bars(benchmark: Benchmark, row: dict[str, str]) -> list[Bar]:
    """Return a row's bars; if a column names the peer, its bar has that name."""
    found = []
    for column in benchmark.bars:
        name, _, unit = column.rpartition(" ")
        value = row.get(column, "").replace(",", "")
        if value.replace(".", "", 1).isdigit():
            found.append(Bar(row.get(name, name), float(value), f"{row[column]} {unit}"))
    return found
