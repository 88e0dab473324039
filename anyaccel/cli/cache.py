"""``anyaccel cache``: lists, checks and clears the built ops."""

from __future__ import annotations

import contextlib
import math
import re
import sys
import time
from datetime import datetime, timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from ..op_builder.engine import environment
from ..op_builder.engine.cache import Cache
from ..op_builder.engine.clearing import clear as clear_cache
from ..op_builder.engine.errors import CacheError

__all__ = ["app"]

app = typer.Typer(help="Show, check and clear the built ops.", no_args_is_help=True)

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _cache() -> Cache:
    """Return the user's cache, never a temporary one, which would be empty.

    Raises:
        CacheError: when there is none.
    """
    wanted = environment.cache_dir() or Cache.default_root()
    try:
        return Cache(wanted)
    except (OSError, CacheError) as error:
        with contextlib.suppress(OSError, CacheError):
            return Cache(wanted, writable=False)  # also root's, as programs do
        if isinstance(error, CacheError):
            raise
        msg = f"opening the cache at {wanted} failed: {error}. Fix: set ANYACCEL_CACHE_DIR to another directory."
        raise CacheError(msg) from error


@app.command("path", epilog="Example: [bold]anyaccel cache path[/]")
def show_path() -> None:
    """Print the directory that holds the built ops."""
    sys.stdout.write(f"{_cache().root}\n")  # typer.echo replaces letters that the locale lacks


@app.command("list", epilog="Example: [bold]anyaccel cache list[/]")
def list_entries() -> None:
    """List the built ops with their size, age, compiler and target."""
    cache = _cache()
    columns = (Column(name, overflow="fold") for name in ("op", "KiB", "built", "compiler", "target"))
    table = Table(*columns, title=escape(str(cache.root)), title_justify="left")
    for entry in cache.entries():
        compiler, target = escape(entry.facts.get("compiler_version", "")), escape(entry.facts.get("target", ""))
        status = cache.status(entry)
        if status is None:
            table.add_row(entry.op, "[red]missing[/]", "", compiler, target)
        else:
            table.add_row(entry.op, f"{status.st_size / 1024:.0f}", _built(status.st_mtime), compiler, target)
    Console().print(table)


@app.command("verify", epilog="Example: [bold]anyaccel cache verify[/]")
def verify() -> None:
    """Compare every binary with its digest; exit with 1 if one differs. Such an op is built again, never loaded."""
    cache = _cache()
    intact, damaged = cache.verify()
    console = Console()
    for path in damaged:
        console.print(f"[red]differs from its metadata:[/] {escape(str(path))}", soft_wrap=True)
    console.print(f"{len(intact)} intact, {len(damaged)} damaged")
    raise typer.Exit(1 if damaged else 0)


@app.command("clear", epilog="Example: [bold]anyaccel cache clear --older-than 30d[/]")
def clear(
    older_than: Annotated[
        str, typer.Option(help="Remove only ops built longer ago than this: 90s, 15m, 12h, 30d, 4w.")
    ] = "0s",
) -> None:
    """Remove built ops; running programs keep the ones that they have loaded."""
    age = _duration(older_than).total_seconds()
    oldest = time.time() - age if age else math.inf  # clocks of other machines may be ahead
    cache = _cache()
    try:
        removed = clear_cache(cache, oldest)
    except OSError as error:
        msg = f"clearing the cache failed: {error}. Fix: make {cache.root} writable."
        raise CacheError(msg) from error
    typer.echo(f"removed {removed} of the ops in {cache.root}")


def _built(timestamp: float) -> str:
    try:
        return datetime.fromtimestamp(timestamp).astimezone().isoformat(" ", "minutes")
    except (OverflowError, ValueError, OSError):  # a file may claim any year
        return "?"


def _duration(text: str) -> timedelta:
    match = re.fullmatch(r"(\d+)([smhdw])", text)
    if match is None:
        msg = f"got {text!r}; expected a number and a unit, such as 30d. Fix: use s, m, h, d or w."
        raise typer.BadParameter(msg, param_hint="--older-than")
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except (OverflowError, ValueError):  # Python reads 4300 digits
        return timedelta.max
