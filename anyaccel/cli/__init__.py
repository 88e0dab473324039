"""The command line: ``anyaccel <subcommand>``, one file each."""

from __future__ import annotations

import logging
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape

from .. import __version__
from ..accelerator.errors import AnyaccelError
from . import bench, build, cache, check, conformance, demo, doctor, migrate, report

__all__ = ["main"]

app = typer.Typer(
    name="anyaccel",
    help="One object for whatever accelerator the machine has, and PyTorch ops built on demand.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
_COMMANDS = {
    "report": report,
    "build": build,
    "doctor": doctor,
    "conformance": conformance,
    "migrate": migrate,
    "check": check,
    "bench": bench,
    "demo": demo,
}
for _name, _module in _COMMANDS.items():
    app.command(_name, epilog=_module.EPILOG)(_module.command)
app.add_typer(cache.app, name="cache")


@app.callback(invoke_without_command=True)
def _configure(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what the library logs, decisions included.")
    ] = False,
) -> None:
    if version:
        typer.echo(f"anyaccel {__version__}")
        raise typer.Exit
    handler = RichHandler(console=Console(stderr=True), show_path=False, show_time=False)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s", handlers=[handler])


def main() -> None:
    """Run the command line; an error of ours is one readable message and exit code 1."""
    try:
        app()
    except AnyaccelError as error:
        Console(stderr=True).print(f"[red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None
