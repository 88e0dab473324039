"""``anyaccel doctor``: checks every toolchain, and shows the command that fixes a rejected one."""

from __future__ import annotations

import json
import shutil
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..accelerator.errors import AnyaccelError
from ..op_builder.engine import environment
from ..op_builder.engine.cache import Cache, open_cache
from ..op_builder.engine.toolchains.survey import PURPOSES, survey
from ..op_builder.torch_libraries import missing_python_headers
from .report import verdict_of

__all__ = ["EPILOG", "Diagnosis", "command", "examine"]

EPILOG = "Example: [bold]anyaccel doctor --json[/]"

_LITTLE_SPACE_BYTES = 64 << 20


@dataclass(frozen=True)
class Diagnosis:
    """A checked tool: whether it was accepted, why, and the command that fixes it."""

    what: str
    tool: str
    accepted: bool
    detail: str
    fix: str


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")] = False,
) -> None:
    """Check everything that building ops needs. Exits with 1 if ops cannot be built for this machine's CPU."""
    findings = examine()
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings, Console())
    needed = [
        any(one.accepted for one in findings if one.what == what) for what in ("settings", "ninja", "C++", "cache")
    ]
    raise typer.Exit(0 if all(needed) else 1)


def examine() -> list[Diagnosis]:
    """Check everything that building ops needs, without leaving builds behind or creating a device context."""
    cache = _cache_finding()
    memory = open_cache(environment.cache_dir()).root if cache.accepted else Path("/nonexistent")
    findings = [_settings_finding(), cache]
    findings += [
        Diagnosis(probe.toolchain, probe.name, probe.tool is not None, probe.detail, probe.fix)
        for probe in survey(memory)
    ]
    return [*findings, _python_headers()]


def _settings_finding() -> Diagnosis:
    """Check the variables that every build reads."""
    try:
        environment.build_jobs()
        environment.build_timeout()
        environment.build_switches()
    except AnyaccelError as error:
        return Diagnosis("settings", "environment", False, str(error), str(error).rpartition("Fix: ")[2].rstrip("."))
    return Diagnosis("settings", "environment", True, "every variable can be read", "")


def _cache_finding() -> Diagnosis:
    root = None
    try:
        root = environment.cache_dir()
        wanted = root or Cache.default_root()
        cache = open_cache(root)
    except AnyaccelError as error:
        return Diagnosis("cache", str(root or ""), False, str(error), str(error).rpartition("Fix: ")[2].rstrip("."))
    if cache.root != wanted:
        return Diagnosis(
            "cache", str(wanted), False, "it is not writable", "set ANYACCEL_CACHE_DIR to a writable directory"
        )
    free_bytes = shutil.disk_usage(cache.root).free
    detail = f"private, {free_bytes / 2**30:.1f} GiB free"
    if free_bytes < _LITTLE_SPACE_BYTES:
        return Diagnosis("cache", str(cache.root), False, detail, "anyaccel cache clear --older-than 30d")
    return Diagnosis("cache", str(cache.root), True, detail, "")


def _python_headers() -> Diagnosis:
    missing = missing_python_headers()
    detail = f"{missing}; only third parties' pybind ops need it" if missing else sysconfig.get_path("include")
    return Diagnosis("Python.h", "headers", not missing, detail, "apt-get install python3-dev" if missing else "")


def _show(findings: list[Diagnosis], console: Console) -> None:
    table = Table("for", "tool", "", "detail", title="What building ops needs", title_justify="left")
    table.columns[3].overflow = "fold"
    for one in findings:
        detail = f"{one.detail}\nFix: {one.fix}" if one.fix else one.detail
        table.add_row(one.what, escape(one.tool), verdict_of(one.accepted), escape(detail))
    console.print(table)
    for what, purpose in PURPOSES.items():
        serves = any(one.accepted for one in findings if one.what == what)
        console.print(f"{verdict_of(serves)} [bold]{what}[/] {purpose}", soft_wrap=True)
