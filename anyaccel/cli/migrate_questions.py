"""``anyaccel migrate --interactive``: each class of questions once, with the code, and what an answer would change."""

from __future__ import annotations

from dataclasses import replace
from glob import escape
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from ..migrate.answers import TITLES, Answer
from ..migrate.lines import lines_of
from ..migrate.rules import RULES
from ..migrate.settings import keep_answers
from ..migrate.site import SiteOutcome
from .migrate_report import show_diff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from rich.console import Console

    from ..migrate.files import FileResult
    from ..migrate.settings import Settings
    from ..migrate.site import Site

__all__ = ["ask"]

_CONTEXT = 3  # lines of code above and below


def ask(
    console: Console,
    results: list[FileResult],
    settings: Settings,
    again: Callable[[Sequence[Path], Settings], list[FileResult]],
) -> tuple[list[FileResult], Settings]:
    """Ask until every report is answered or left for later; each answer is kept at once.

    Args:
        console: where to show the code.
        results: what is known of the files.
        settings: the project's, with the answers that there are.
        again: works out what becomes of some files with other answers.

    Returns:
        What becomes of the files, and the settings, with the answers.
    """
    later: set[tuple[Path, str]] = set()
    is_current = True
    while True:
        open_ones = [
            (result, site)
            for result in results
            for site in result.sites
            if site.outcome is SiteOutcome.REPORTED and (result.path, site.question) not in later
        ]
        if not open_ones and is_current:
            return results, settings
        if not open_ones:  # what an answer changes in one file can settle a question in another
            results, is_current = again([one.path for one in results], settings), True
            continue
        ported = (one for _, one in open_ones if one.can_be_ported)
        site = next(ported, open_ones[0][1])  # others may only hang on one of these
        alike = [one for one in open_ones if one[1].question == site.question]
        answer = _ask_one(console, alike, settings, again)
        if answer is None:
            later |= {(one.path, site.question) for one, _ in alike}
            continue
        settings = keep_answers(settings, [answer])
        console.print(Text(f"Kept in {settings.file}."))
        linked = [one for one in open_ones if one[1].question == "depends-on-cuda"]  # maybe on code in another file
        new = {one.path: one for one in again(list({one.path: None for one, _ in (*alike, *linked)}), settings)}
        results, is_current = [new.get(one.path, one) for one in results], False
        later |= {
            (one.path, site.question)
            for one in new.values()
            for site in one.sites
            if site.question == answer.question
            and site.outcome is SiteOutcome.REPORTED
            and answer.is_for(settings.relative(one.path))
        }  # what cannot be ported stays a report


def _ask_one(
    console: Console,
    alike: list[tuple[FileResult, Site]],
    settings: Settings,
    again: Callable[[Sequence[Path], Settings], list[FileResult]],
) -> Answer | None:
    """Show the first place of a class that can be ported, or the first of all, and ask; None leaves the class for later."""
    result, site = next(((one, place) for one, place in alike if place.can_be_ported), alike[0])
    title = TITLES.get(site.question) or (RULES[site.question].title if site.question in RULES else site.question)
    files, places = len({one.path for one, _ in alike}), len(alike)
    count = f"{places} place{'s' * (places != 1)} in {files} file{'s' * (files != 1)}"
    console.print(Text(f"\n{site.question}: {title} ({count})", style="bold"))
    console.print(Text(f"{result.path}:{site.line}: {site.reason}", style="yellow"))
    choices = {"n": "never: keep all like this as they are", "s": "decide later"}
    path = settings.relative(result.path)
    if site.can_be_ported:
        choices = {"a": "port all like this", "f": f"port those of {path}", **choices}
        _show_port(console, result, site, settings, again)
    else:
        _show_code(console, result, site)
    for letter, meaning in choices.items():
        console.print(f"  {letter}  {meaning}", markup=False)
    chosen = _prompted(console, choices)
    while chosen not in choices:
        console.print(Text(f"{chosen or 'nothing'!r} is no answer here; expected {', '.join(choices)}.", style="red"))
        chosen = _prompted(console, choices)
    if chosen == "s":
        return None
    return Answer(site.question, "keep" if chosen == "n" else "port", (escape(path),) if chosen == "f" else ())


def _prompted(console: Console, choices: Iterable[str]) -> str:
    console.print("/".join(choices), end="? ", markup=False)
    try:  # typer writes a part of its own prompts to stdout, where --pr has the summary
        return (
            str(typer.prompt("", default="", show_default=False, prompt_suffix="", err=console.stderr)).strip().lower()
        )
    except RuntimeError as error:  # the standard input is closed
        raise typer.Abort from error


def _show_code(console: Console, result: FileResult, site: Site) -> None:
    if site.cell is not None:
        console.print(Text(f"cell {site.cell}: {site.code}"))
        return
    lines = [line.rstrip("\r\n") for line in lines_of(result.old)]
    last = site.line + site.code.count("\n")
    for number in range(max(1, site.line - _CONTEXT), min(len(lines), last + _CONTEXT) + 1):
        is_site = site.line <= number <= last
        console.print(
            Text(f"{'>' if is_site else ' '} {number:5} {lines[number - 1]}", style="bold" if is_site else "")
        )


def _show_port(
    console: Console,
    result: FileResult,
    site: Site,
    settings: Settings,
    again: Callable[[Sequence[Path], Settings], list[FileResult]],
) -> None:
    """Show the code, and what it becomes by either answer."""
    _show_code(console, result, site)
    path = settings.relative(result.path)
    (now,) = again([result.path], settings)  # with the answers of other classes
    for answer in ("port", "keep"):
        given = (*settings.answers.given, Answer(site.question, answer, (escape(path),)))
        (then,) = again([result.path], replace(settings, answers=replace(settings.answers, given=given)))
        console.print(Text(f"{answer}:{' the lines stay' if then.new == now.new else ''}", style="bold"))
        show_diff(console, now.new, then.new, path, context=1)
