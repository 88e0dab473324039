"""``anyaccel migrate``: what would change, and the change itself."""

from __future__ import annotations

import enum
from dataclasses import replace
from pathlib import Path  # noqa: TC003  # typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from ..migrate.site import MigrateError, SiteOutcome
from .migrate_report import show_diff, show_report
from .places import PATHS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..migrate.files import FileResult
    from ..migrate.settings import Settings

__all__ = ["EPILOG", "command", "results_of"]

EPILOG = "Example: [bold]anyaccel migrate train.py models/[/] shows a diff; [bold]--write[/] applies it."
Assumption = enum.Enum("Assumption", {"any-accelerator": "any-accelerator"}, type=str)


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Python files, notebooks, and folders of them.", **PATHS),
    ],
    apply: Annotated[bool, typer.Option("--write", help="Write the files, rather than show a diff.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also write files that git could not restore.")] = False,
    interactive: Annotated[
        bool,
        typer.Option("--interactive", "-i", help="Ask once per class of questions; pyproject.toml keeps the answers."),
    ] = False,
    assume: Annotated[
        Assumption | None, typer.Option(help="Answer the questions about CUDA at once: they mean any accelerator.")
    ] = None,
    drop_cuda_guards: Annotated[
        bool, typer.Option("--drop-cuda-guards", help="Delete assertions and exits that only CUDA passes.")
    ] = False,
    pr: Annotated[bool, typer.Option("--pr", help="Print a summary in Markdown, for a pull request.")] = False,
    target: Annotated[
        str, typer.Option(help="What the new code calls: anyaccel, deepspeed or torch.accelerator.")
    ] = "anyaccel",
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave out files and folders like this, such as 'third_party'.")
    ] = None,
) -> None:
    """Port code from torch.cuda to any accelerator."""
    console = Console(soft_wrap=True, highlight=False)
    settings = _settings(assumes_any_accelerator=assume is not None, drops_cuda_guards=drop_cuda_guards)
    results = results_of(paths, target, exclude or [], settings)
    if interactive:
        _require_saved(results if apply else (), force=force)  # before any answer is kept
        results, settings = _asked(Console(stderr=pr, soft_wrap=True, highlight=False), results, target, settings)
    results = _wrapped(results)
    unsaved = _require_saved(results if apply else (), force=force)
    results, unwritten = _written(results) if apply else (results, [])
    if pr:
        from ..migrate.summary import summary

        typer.echo(summary(results, settings, target, is_written=apply, unsaved=unsaved), nl=False)
    else:
        for result in () if apply else results:
            show_diff(console, result.old, result.new, str(result.path))
        show_report(console, results, settings, is_written=apply)
    failed = any(result.errors for result in results)
    for refusal in unwritten:
        typer.secho(str(refusal), fg="red", err=pr)
    raise typer.Exit(1 if failed or unwritten else 0)


def _settings(*, assumes_any_accelerator: bool, drops_cuda_guards: bool) -> Settings:
    from ..migrate.settings import settings_of

    settings = settings_of()
    assumes_any_accelerator |= settings.answers.assumes_any_accelerator
    given = replace(
        settings.answers, assumes_any_accelerator=assumes_any_accelerator, drops_cuda_guards=drops_cuda_guards
    )
    return replace(settings, answers=given)


def results_of(
    paths: Sequence[Path], target: str, exclude: Sequence[str], settings: Settings, among: Sequence[Path] | None = None
) -> list[FileResult]:
    """Work out what becomes of every file that some paths mean, with a progress bar where there are many."""
    # LibCST takes a while to import, which other commands need not wait for
    from ..migrate.discovery import discover
    from ..migrate.files import migrate_files
    from ..migrate.targets import target_named

    target_named(target)
    files = discover(paths, [*exclude, *settings.exclude])
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=len(files) < 20 or not console.is_terminal) as progress:
        task = progress.add_task("reading", total=len(files))
        return migrate_files(
            files,
            target,
            lambda: progress.advance(task),
            lambda path: settings.answers.for_file(settings.relative(path)),
            among,
        )


def _asked(
    console: Console, results: list[FileResult], target: str, settings: Settings
) -> tuple[list[FileResult], Settings]:
    from .migrate_questions import ask

    files = [result.path for result in results]

    def again(some: Sequence[Path], new: Settings) -> list[FileResult]:
        return results_of(some, target, [], new, among=files)

    return ask(console, results, settings, again)


def _wrapped(results: list[FileResult]) -> list[FileResult]:
    from ..migrate.files import with_wrapped_lines

    return with_wrapped_lines(results)


def _require_saved(results: Iterable[FileResult], *, force: bool) -> list[Path]:
    """Return the files to change that git could not restore; raise an error for them unless it is forced."""
    from ..migrate.discovery import dirty_files

    dirty = dirty_files(result.path for result in results if result.new != result.old)
    if dirty and not force:
        shown = ", ".join(str(path) for path in dirty[:3]) + (f" and {len(dirty) - 3} more" if len(dirty) > 3 else "")
        msg = (
            f"writing failed: got files that git could not restore ({shown}); expected them to be committed. "
            f"Fix: commit or stash, or --force. Nothing has been written."
        )
        raise MigrateError(msg)
    return dirty


def _written(results: list[FileResult]) -> tuple[list[FileResult], list[MigrateError]]:
    """Write what changed; return the results, unchanged where that failed, and the errors: one such file stops no other."""
    from ..migrate.files import write

    done, errors = [], []
    for result in results:
        try:
            if result.new != result.old:
                write(result)
            done.append(result)
        except MigrateError as error:
            errors.append(error)
            left = tuple(site for site in result.sites if site.outcome is not SiteOutcome.REWRITTEN)
            done.append(replace(result, new=result.old, sites=left))
    return done, errors
