"""What ``anyaccel migrate`` shows: diffs, reported places, verdicts and figures."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ..migrate.lines import lines_of
from ..migrate.moved_lines import moved, moved_verdict
from ..migrate.site import SiteOutcome
from ..migrate.summary import FEW_PROGRAMS, ported_by_answers

if TYPE_CHECKING:
    from rich.console import Console

    from ..migrate.files import FileResult
    from ..migrate.settings import Settings

__all__ = ["show_diff", "show_report"]

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def show_diff(console: Console, old: str, new: str, path: str, context: int = 3) -> None:
    """Show what differs between two texts of a file."""
    olds, news = lines_of(old), lines_of(new)
    for line in difflib.unified_diff(olds, news, path, path, n=context):
        console.print(Text(line.rstrip("\r\n"), style=_COLOURS.get(line[:1], "")))


def show_report(console: Console, results: list[FileResult], settings: Settings, *, is_written: bool) -> None:
    """Show the reported places, the verdict on each program, and how many sites there are of which kind."""
    from ..migrate.verdict import verdicts

    _show_reported(console, [moved(each) for each in results] if is_written else results)
    _show_table(console, results)
    for result in results:
        for error in result.errors:
            where = f"{result.path}:{error.line}" if error.cell is None else str(result.path)
            console.print(Text(f"{where}: {error}", style="red"))
    _show_passed_over(console, results)
    _show_long_lines(console, results)
    found = [moved_verdict(each, results) if is_written else each for each in verdicts(results)]
    if found:
        console.print(Text("Programs:", style="bold"))
    fine = [verdict for verdict in found if verdict.stops is None]
    for verdict in found:
        if verdict.stops is not None or len(fine) <= FEW_PROGRAMS:
            console.print(Text(str(verdict), style="" if verdict.stops is None else "yellow"))
    if len(fine) > FEW_PROGRAMS:
        console.print(f"{len(fine)} others: start on a CPU: yes")
    answered = ported_by_answers(results)
    if settings.answers.assumes_any_accelerator:
        number = answered.total()
        console.print(f"Assumed: questions about CUDA mean any accelerator ({number} sites were ported by answers).")
    elif answered:
        counts = ", ".join(f"{question} {count}" for question, count in sorted(answered.items()))
        console.print(f"Ported by the answers in {settings.file.name}: {counts}")
    console.print(_summary(results, is_written=is_written))


def _show_reported(console: Console, results: list[FileResult]) -> None:
    reported = [
        (result.path, site) for result in results for site in result.sites if site.outcome is SiteOutcome.REPORTED
    ]
    if reported:
        console.print(Text("\nFor a person:", style="bold"))
    for path, site in reported:
        where = f"{path}:cell {site.cell}:{site.line}" if site.cell else f"{path}:{site.line}"
        first = site.code.splitlines()[0]
        console.print(Text.assemble((f"{where}: ", "cyan"), (f"{site.rule}: ", "yellow"), f"{first}: {site.reason}"))


def _show_table(console: Console, results: list[FileResult]) -> None:
    counts = Counter((site.rule, site.outcome) for result in results for site in result.sites)
    if counts:
        table = Table("rule", *(each.value for each in SiteOutcome), title="Sites", title_justify="left")
        for rule in sorted({rule for rule, _ in counts}):
            table.add_row(rule, *(str(counts[rule, each] or "") for each in SiteOutcome))
        console.print(table)


def _show_passed_over(console: Console, results: list[FileResult]) -> None:
    """Say what the tool's check of itself found; nothing is the rule."""
    passed = [(result.path, each) for result in results for each in result.passed_over]
    if passed:
        console.print(Text(f"\n{len(passed)} token{'s' * (len(passed) != 1)} not understood:", style="bold red"))
    for path, each in passed:
        where = f"{path}:cell {each.cell}:{each.line}" if each.cell else f"{path}:{each.line}"
        console.print(Text.assemble((f"{where}: ", "cyan"), each.text))


def _show_long_lines(console: Console, results: list[FileResult]) -> None:
    """Say how many lines became too long where ruff, which would have wrapped them, is missing."""
    from ..migrate import long_lines

    if long_lines.ruff() is None:
        number = sum(
            len(long_lines.too_long(each.path, each.old, each.new)) for each in results if each.new != each.old
        )
        if number:
            lines = "line is" if number == 1 else "lines are"
            fix = "pip install ruff, and run this again"
            console.print(f"{number} changed {lines} longer than the project's others: {fix}, to wrap them.")


def _summary(results: list[FileResult], *, is_written: bool) -> str:
    files = sum(result.new != result.old for result in results)
    total = Counter(site.outcome for result in results for site in result.sites)
    rewritten, reported, left = (total[each] for each in SiteOutcome)
    found = f"{rewritten} rewritten in {files} file{'s' * (files != 1)}, {reported} reported, {left} left"
    return found if is_written or not files else f"{found}; nothing is written yet: --write does"
