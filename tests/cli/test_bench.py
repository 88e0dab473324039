"""``anyaccel bench``, and the pages that it and ``anyaccel report`` write."""

from __future__ import annotations

import json
import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from anyaccel.benchmarks.suite import SUITE, Benchmark
from anyaccel.cli.page import Bar, Page

from ..programs import run_command_line

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def _run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "DS_ACCELERATOR": "cpu"}
    return run_command_line(arguments, environment, cwd)


class _Tags(HTMLParser):
    """Checks that tags are closed in order, and records what a page would load."""

    VOID = ("meta", "link", "br", "!doctype")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.loaded += [value for name, value in attrs if name in ("src", "href") and value and value[0] != "#"]
        self.loaded += ["a script"] * (tag == "script")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_table_and_the_programs_are_the_same() -> None:
    programs = {file.stem.removeprefix("bench_") for file in BENCHMARKS.glob("bench_*.py")}
    assert {benchmark.topic for benchmark in SUITE} == programs


@pytest.mark.parametrize("benchmark", SUITE, ids=lambda benchmark: benchmark.topic)
def test_columns_of_the_table_are_those_of_the_last_results(benchmark: Benchmark) -> None:
    kept = BENCHMARKS / "results" / f"{benchmark.topic}.json"
    (row, *_) = json.loads(kept.read_text())["rows"]
    assert {*benchmark.label, *benchmark.bars} <= set(row)


def test_one_benchmark_becomes_a_table_and_a_page(tmp_path: Path) -> None:
    finished = _run("bench", "calls", "--html", "the page.html", "--results", "kept", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    first, *_ = finished.stdout.splitlines()
    assert re.match(r"1 of 1 benchmarks can run here, about \d+ min", first)
    assert "memory_allocated" in finished.stdout
    rows = json.loads((tmp_path / "kept" / "calls.json").read_text())["rows"]
    page = (tmp_path / "the page.html").read_text()
    assert _Tags(page).loaded == ["data:,"]
    for row in rows:
        assert row["ours ns"] in page
    assert page.count("<div class=group>") == len(rows)


def test_an_unknown_topic_and_a_page_that_cannot_be_written_are_refused_first(tmp_path: Path) -> None:
    unknown = _run("bench", "nonsense", cwd=tmp_path)
    assert unknown.returncode == 1
    assert "got nonsense; expected some of import, calls" in unknown.stderr
    unwritable = _run("bench", "calls", "--html", ".", cwd=tmp_path)
    assert unwritable.returncode == 1
    assert "writing . failed: it is a directory" in unwritable.stderr
    assert "calls" not in unwritable.stdout


def test_a_benchmark_that_fails_is_reported_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from anyaccel.cli import bench

    there, absent = SUITE[1], Benchmark("no_such_program", "nothing", 1, ("what",))
    lacking = Benchmark("lacking", "nothing", 1, ("what",), needs=("no_such_package",))
    chosen = [absent, lacking, there]
    missing = {one.topic: why for one in chosen if (why := bench._lacking(one))}
    outcomes = bench._run_all(chosen, missing, tmp_path, Console(quiet=True))
    assert [outcome.results is not None for outcome in outcomes] == [False, False, True]
    assert "failed with exit code 2" in outcomes[0].why
    assert outcomes[1].why == "not installed: no_such_package"
    assert "not installed: no_such_package" in bench._page(outcomes).html()


def test_the_list_shows_what_can_run(tmp_path: Path) -> None:
    shown = _run("bench", "--list", cwd=tmp_path).stdout
    assert all(benchmark.topic in shown for benchmark in SUITE)


def test_report_as_a_page(tmp_path: Path) -> None:
    finished = _run("report", "--html", "report.html", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    page = (tmp_path / "report.html").read_text()
    assert _Tags(page).loaded == ["data:,"]
    for expected in ("Accelerators", "Toolchains", "DS_ACCELERATOR=cpu", "cpu_adam", "class=good"):
        assert expected in page


def test_whatever_is_shown_is_escaped() -> None:
    page = Page("a <b>", "x & y")
    page.section("<s>", "<t>")
    page.table(["<c>"], [["<d>"]])
    page.bars("<e>", [("<f>", [Bar("<g>", 1.0, "<h>"), Bar("i", 0.0, "0")])])
    written = page.html()
    _Tags(written)
    for letter in "bstcdefgh":
        assert f"<{letter}>" not in written.split("<h1>")[1]
        assert f"&lt;{letter}&gt;" in written
