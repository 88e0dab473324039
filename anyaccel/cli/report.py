"""``anyaccel report``: shows this machine and how anyaccel uses it."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path  # noqa: TC003  # typer reads the annotation
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .page import Page, require_writable, write
from .report_data import gather, ways

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .report_data import Report

__all__ = ["EPILOG", "command", "show", "verdict_of"]

EPILOG = "Example: [bold]anyaccel report --json | python -m json.tool[/]"

_COLOURS = {
    "chosen": "green", "accepted": "green", "rejected": "yellow", "built": "green", "buildable": "cyan",
    "no build needed": "green", "not buildable": "red",
}  # fmt: skip
"""The colours of verdicts in tables."""


@dataclass(frozen=True)
class _Section:
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained HTML page instead.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show every tool, builder and kernel implementation.")
    ] = False,
) -> None:
    """Show the chosen device and why, versions, memory, usable ops, and problems.

    Under torchrun it also shows which way data takes between each two ranks of the backend shm, and why:
    torchrun --nproc-per-node 2 --no-python anyaccel report
    """
    if as_json and html is not None:
        msg = f"got --json and --html {html}; expected one of them. Fix: run it twice."
        raise typer.BadParameter(msg, param_hint="--json")
    ranks = ways()
    if ranks is None:
        return  # the first rank shows the report
    if html is not None:
        require_writable(html)
    report = gather(ranks)
    if html is not None:
        write(html, _page(report))
        typer.echo(f"wrote {html}")
    elif as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2))
    else:
        show(report, Console(), everything=verbose or logging.getLogger().isEnabledFor(logging.INFO))


def show(report: Report, console: Console, *, everything: bool = False) -> None:
    """Print a report as tables: the device, the machine and the ops; with ``everything``, every tool, builder and kernel."""
    machine = _machine(report)
    for section in [*machine, *_details(report)] if everything else [*machine, _summary_of_ops(report)]:
        table = Table(*section.columns, title=escape(section.title), title_justify="left", title_style="bold")
        table.header_style, table.columns[-1].overflow = "dim", "fold"
        for row in section.rows:
            table.add_row(*(_coloured(cell) for cell in row))
        console.print(table)


def verdict_of(accepted: bool) -> str:
    """Return a table's text for an accepted or a rejected tool."""
    return _coloured(_said(accepted))


def _said(accepted: bool) -> str:
    return "accepted" if accepted else "rejected"


def _coloured(word: str) -> str:
    return f"[{_COLOURS[word]}]{word}[/]" if word in _COLOURS else escape(word)


def _page(report: Report) -> Page:
    page = Page("anyaccel report", time.strftime("%Y-%m-%d"))
    for section in [*_machine(report), *_details(report)]:
        page.section(section.title)
        chosen = [bool({"chosen", "built", "accepted"} & set(row)) for row in section.rows]
        page.table(section.columns, section.rows, chosen)
    return page


def _machine(report: Report) -> list[_Section]:
    cpu = report.cpu
    backends = [name for name, is_here in report.communication_backends.items() if is_here]
    machine = [
        *report.versions.items(),
        ("cpu", f"{cpu['name']}, {cpu['cores']} cores, NUMA nodes: {cpu['numa_nodes']}"),
        ("isa", " ".join(cpu["isa"])),
        *((name, f"{size_bytes / 2**30:.1f} GiB") for name, size_bytes in report.memory.items()),
        ("torch.distributed", " ".join(backends) or "no backend"),
    ]
    devices = [(one.name, one.source, "chosen" if one.chosen else "", one.reason) for one in report.devices]
    ranks = [
        (one.way, " ".join(f"{first}-{second}" for first, second in one.pairs), one.reason) for one in report.ranks
    ]
    return [
        _Section("Accelerators", ("device", "from", "", "why"), devices),
        _Section("Machine", ("what", "value"), machine),
        *([_Section("Ranks on shm", ("way", "pairs", "why"), ranks)] if ranks else []),
    ]


def _details(report: Report) -> list[_Section]:
    tools = [(one.toolchain, one.name, _said(one.accepted), one.detail) for one in report.toolchains]
    ops = [(one.name, one.builder, one.state, one.detail) for one in report.ops]
    return [
        _Section("Toolchains (anyaccel doctor tells how to fix them)", ("toolchain", "tool", "", "detail"), tools),
        _Section(f"Ops (cache: {report.cache_dir})", ("op", "builder", "state", "why"), ops),
        _Section("Kernels", ("loader", "implementation", "", "why"), _kernels(report)),
    ]


def _summary_of_ops(report: Report) -> _Section:
    """Return the ops by state, with the reason for those that cannot be built; ops of other devices are left out."""
    by_state: dict[tuple[str, str], list[str]] = {}
    for one in report.ops:
        if not one.detail.startswith("no implementation for"):
            by_state.setdefault((one.state, one.detail), []).append(one.name or one.builder)
    rows = [(state, ", ".join(dict.fromkeys(names)), detail) for (state, detail), names in sorted(by_state.items())]
    if not any(detail for _, _, detail in rows):
        return _Section(f"Ops (cache: {report.cache_dir})", ("state", "ops"), [row[:2] for row in rows])
    return _Section(f"Ops (cache: {report.cache_dir})", ("state", "ops", "why"), rows)


def _kernels(report: Report) -> list[tuple[str, ...]]:
    alike = groupby(report.kernels, lambda one: (one.loader, one.chosen, one.reason))
    return [
        (loader, ", ".join(kernel.name for kernel in found), "chosen" if chosen else "", reason)
        for (loader, chosen, reason), found in alike
    ]
