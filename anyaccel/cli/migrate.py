"""``anyaccel migrate``: what would change, and the change itself."""

from __future__ import annotations

import difflib
from collections import Counter
from pathlib import Path  # noqa: TC003  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from ..migrate.site import MigrateError, SiteOutcome

if TYPE_CHECKING:
    from ..migrate.files import FileResult

__all__ = ["EPILOG", "command", "results_of"]

EPILOG = "Example: [bold]anyaccel migrate train.py models/[/] shows a diff; [bold]--write[/] applies it."
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def command(
    paths: Annotated[list[Path], typer.Argument(help="Python files, notebooks, and folders of them.")],
    apply: Annotated[bool, typer.Option("--write", help="Write the files, rather than show a diff.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write files that git would not bring back, too.")] = False,
    target: Annotated[
        str, typer.Option(help="What the new code calls: anyaccel, deepspeed or torch.accelerator.")
    ] = "anyaccel",
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave out paths like this, such as 'third_party/*'.")
    ] = None,
) -> None:
    """Port code from torch.cuda to any accelerator."""
    console = Console(soft_wrap=True, highlight=False)
    results = results_of(paths, target, exclude or [])
    changed = [result for result in results if result.new != result.old]
    unwritten: list[MigrateError] = []
    if apply:
        unwritten = _apply(changed, force)
    else:
        for result in changed:
            _show_diff(console, result)
    _report(console, results)
    failed = [result for result in results if result.errors]
    for result in failed:
        for error in result.errors:
            console.print(Text(f"{result.path}:{error.line}: {error}", style="red"))
    for refusal in unwritten:
        console.print(Text(str(refusal), style="red"))
    _show_passed_over(console, results)
    total = Counter(site.outcome for result in results for site in result.sites)
    console.print(_summary(total, len(changed) - len(unwritten), is_written=apply))
    raise typer.Exit(1 if failed or unwritten else 0)


def results_of(paths: list[Path], target: str, exclude: list[str]) -> list[FileResult]:
    """Work out what becomes of every file that some paths mean, with a progress bar where there are many."""
    from ..migrate.files import (  # LibCST takes a while to import, which other commands need not wait for
        discover,
        migrate_files,
    )
    from ..migrate.targets import target_named

    target_named(target)
    files = discover(paths, exclude)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=len(files) < 20 or not console.is_terminal) as progress:
        task = progress.add_task("reading", total=len(files))
        return migrate_files(files, target, lambda: progress.advance(task))


def _apply(changed: list[FileResult], force: bool) -> list[MigrateError]:
    """Write what changed, and return why some of it could not be; one such file stops no other."""
    from ..migrate.files import dirty_files, write

    dirty = [] if force else dirty_files(result.path for result in changed)
    if dirty:
        shown = ", ".join(str(path) for path in dirty[:3]) + (f" and {len(dirty) - 3} more" if len(dirty) > 3 else "")
        msg = (
            f"writing failed: got files that git would not bring back ({shown}); expected them to be committed. "
            f"Fix: commit or stash, or --force. Nothing has been written."
        )
        raise MigrateError(msg)
    unwritten = []
    for result in changed:
        try:
            write(result)
        except MigrateError as error:
            unwritten.append(error)
    return unwritten


def _show_diff(console: Console, result: FileResult) -> None:
    old, new = result.old.splitlines(keepends=True), result.new.splitlines(keepends=True)
    for line in difflib.unified_diff(old, new, str(result.path), str(result.path)):
        console.print(Text(line.rstrip("\r\n"), style=_COLOURS.get(line[:1], "")))


def _report(console: Console, results: list[FileResult]) -> None:
    reported = [
        (result.path, site) for result in results for site in result.sites if site.outcome is SiteOutcome.REPORTED
    ]
    if reported:
        console.print(Text("\nFor a person:", style="bold"))
    for path, site in reported:
        where = f"{path}:cell {site.cell}:{site.line}" if site.cell else f"{path}:{site.line}"
        first = site.code.splitlines()[0]
        console.print(Text.assemble((f"{where}: ", "cyan"), (f"{site.rule}: ", "yellow"), f"{first}: {site.reason}"))
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
        console.print(Text(f"\n{len(passed)} tokens not understood:", style="bold red"))
    for path, each in passed:
        where = f"{path}:cell {each.cell}:{each.line}" if each.cell else f"{path}:{each.line}"
        console.print(Text.assemble((f"{where}: ", "cyan"), each.text))


def _summary(total: Counter[SiteOutcome], files: int, *, is_written: bool) -> str:
    rewritten, reported, left = (total[each] for each in SiteOutcome)
    found = f"{rewritten} rewritten in {files} files, {reported} for a person, {left} left"
    return found if is_written or not files else f"{found}; nothing is written yet: --write does"
