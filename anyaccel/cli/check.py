"""``anyaccel check``: finds code that is tied to CUDA, for people, CI and editors."""

from __future__ import annotations

import enum
from pathlib import Path  # noqa: TC003  # typer evaluates the annotations
from typing import Annotated

import typer

from ..migrate.findings import FORMATS, findings_of
from ..migrate.settings import settings_of
from .migrate import results_of
from .places import PATHS

__all__ = ["EPILOG", "command"]

EPILOG = (
    "Example: [bold]anyaccel check src/ --format github[/]; [bold]# anyaccel: ignore[rule][/] at its end skips a line."
)
Format = enum.Enum("Format", {name: name for name in FORMATS}, type=str)  # type: ignore[misc]  # the formats by name


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Python files, notebooks, and folders of them.", **PATHS),
    ],
    form: Annotated[Format, typer.Option("--format", help="The output format.")] = Format["text"],
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave out files and folders like this, such as 'third_party'.")
    ] = None,
) -> None:
    """Find code that is tied to CUDA.

    Exits with 1 if there is any or a file cannot be read, with 2 if a path or a setting is wrong.
    """
    findings = findings_of(results_of(paths, "anyaccel", exclude or [], settings_of()))
    typer.echo(FORMATS[form.value](findings), nl=bool(findings) or form.value in ("json", "sarif"))
    raise typer.Exit(1 if findings else 0)
