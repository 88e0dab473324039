"""The command line: ``anyaccel <subcommand>``, one file each."""

from __future__ import annotations

import codecs
import errno
import gc
import io
import logging
import os
import sys
import warnings
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape

from .. import __version__
from ..accelerator.errors import AnyaccelError
from . import bench, build, cache, check, conformance, demo, doctor, migrate, report

__all__ = ["main", "program"]

app = typer.Typer(
    name="anyaccel",
    help="One object for any accelerator, and PyTorch ops built on demand.",
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


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"anyaccel {__version__}")
        raise typer.Exit


@app.callback()
def _configure(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the library's log, including its decisions.")
    ] = False,
) -> None:
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")  # torch's; no command needs numpy
    handler = RichHandler(console=Console(stderr=True), show_path=False, show_time=False)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s", handlers=[handler])


_SHOWN_ANYWAY = "anyaccel.shown_anyway"


def _show_anyway(error: UnicodeError) -> tuple[bytes, int]:
    """Return the output for characters that the locale lacks: the raw bytes of paths, escapes for other characters."""
    assert isinstance(error, UnicodeEncodeError)  # noqa: S101  # it is set for output only
    shown = bytearray()
    for character in error.object[error.start : error.end]:
        is_of_path = "\udc80" <= character <= "\udcff"
        shown += bytes([ord(character) - 0xDC00]) if is_of_path else character.encode("ascii", "backslashreplace")
    return bytes(shown), error.end


def main() -> None:
    """Run the command line; for our own errors, print one readable message and set the exit code."""
    codecs.register_error(_SHOWN_ANYWAY, _show_anyway)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # None where a shell closed it
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_SHOWN_ANYWAY)
    try:
        app()
    except AnyaccelError as error:
        Console(stderr=True).print(f"[red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(error.exit_code) from None
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # what is left cannot be written either
        Console(stderr=True).print(
            f"[red]error:[/] writing the output failed: got {error.strerror}; expected free space. Fix: free some.",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
        raise SystemExit(1) from None


def program() -> None:
    """Run the command line in a process of its own, which ends without looking for garbage in all of torch: 0.5 s."""
    try:
        main()
    finally:
        gc.freeze()
