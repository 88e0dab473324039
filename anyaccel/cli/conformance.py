"""``anyaccel conformance``: checks a class against the contract."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["EPILOG", "command"]

EPILOG = "Example: [bold]anyaccel conformance anyaccel:CPU_Accelerator[/]"
_COLOURS = {"ok": "green", "unsupported": "yellow", "wrong": "red"}


def command(
    target: Annotated[str, typer.Argument(metavar="PACKAGE.MODULE:CLASS", help="The accelerator class to check.")],
) -> None:
    """Check every member of an accelerator class. Exits with 1 if one is wrong, with 2 if the class cannot be checked here."""
    from ..testing.outcome import run_checks  # imports torch, which --help does not need

    console = Console()
    accelerator = _make(target)
    if not accelerator.is_available():
        raise _unusable(f"'{target}' is not available on this machine")
    table = Table("member", "outcome", "why", title=target, title_justify="left")
    results = run_checks(accelerator)
    for result in results:
        outcome = result.outcome.value
        table.add_row(result.member, f"[{_COLOURS[outcome]}]{outcome}[/]", escape(result.why))
    console.print(table)
    counts = Counter(result.outcome.value for result in results)
    console.print(", ".join(f"{counts[outcome]} {outcome}" for outcome in _COLOURS))
    raise typer.Exit(1 if counts["wrong"] else 0)


def _make(target: str) -> Any:
    module, separator, name = target.partition(":")
    if not separator:
        raise _unusable(f"got {target!r}; expected package.module:Class")
    try:
        return getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise _unusable(f"'{target}' cannot be created: {error}") from error


def _unusable(why: str) -> typer.BadParameter:
    return typer.BadParameter(
        f"{why}. Fix: name an accelerator class whose device this machine has.", param_hint="CLASS"
    )
