"""``anyaccel report``: what this machine has, and what anyaccel makes of it."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .report_data import gather

if TYPE_CHECKING:
    from .report_data import Report

__all__ = ["EPILOG", "command", "show", "verdict"]

EPILOG = "Example: [bold]anyaccel report --json | python -m json.tool[/]"


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Show devices and why each was chosen or rejected, versions, memory, compilers and the ops' state."""
    report = gather()
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2))
    else:
        show(report, Console())


def show(report: Report, console: Console) -> None:
    """Print a report as tables."""
    devices = _table("Accelerators", "device", "from", "", "why")
    for device in report.devices:
        mark = "[green]chosen[/]" if device.chosen else ""
        devices.add_row(device.name, device.source, mark, escape(device.reason))
    console.print(devices)
    machine = _table("Machine", "what", "value")
    for name, version in report.versions.items():
        machine.add_row(name, version)
    cpu = report.cpu
    machine.add_row("cpu", f"{cpu['name']}, {cpu['cores']} cores, {cpu['numa_nodes']} NUMA nodes")
    machine.add_row("isa", " ".join(cpu["isa"]))
    for name, size_bytes in report.memory.items():
        machine.add_row(name, f"{size_bytes / 2**30:.1f} GiB")
    backends = [name for name, is_here in report.communication_backends.items() if is_here]
    machine.add_row("torch.distributed", " ".join(backends) or "no backend")
    console.print(machine)
    toolchains = _table("Toolchains (anyaccel doctor tells how to mend them)", "toolchain", "tool", "", "detail")
    for tool in report.toolchains:
        toolchains.add_row(tool.toolchain, escape(tool.name), verdict(tool.accepted), escape(tool.detail))
    console.print(toolchains)
    ops = _table(f"Ops (cache: {escape(report.cache_dir)})", "op", "builder", "state", "why")
    for op in report.ops:
        colour = {"built": "green", "buildable": "cyan"}.get(op.state, "red")
        ops.add_row(op.name, op.builder, f"[{colour}]{op.state}[/]", escape(op.detail))
    console.print(ops)
    kernels = _table("Kernels", "loader", "implementation", "", "why")
    for (loader, chosen, reason), alike in groupby(report.kernels, lambda one: (one.loader, one.chosen, one.reason)):
        names = ", ".join(kernel.name for kernel in alike)
        kernels.add_row(loader, names, "[green]chosen[/]" if chosen else "", escape(reason))
    console.print(kernels)


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", title_style="bold", header_style="dim")
    table.columns[-1].overflow = "fold"
    return table


def verdict(accepted: bool) -> str:
    """Return how a table says that a tool was accepted or rejected."""
    return "[green]accepted[/]" if accepted else "[yellow]rejected[/]"
