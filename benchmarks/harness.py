"""Measures candidates in turn, several rounds, and reports medians."""

from __future__ import annotations

import gc
import json
import platform
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results"


def interleaved(candidates: dict[str, Callable[[], object]], rounds: int, calls: int = 1) -> dict[str, float]:
    """Return each candidate's median time in seconds a call; every round times each of them once, in turn."""
    for candidate in candidates.values():
        candidate()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    gc.collect()
    for _ in range(rounds):
        for name, candidate in candidates.items():
            started = time.perf_counter()
            for _ in range(calls):
                candidate()
            times[name].append((time.perf_counter() - started) / calls)
    return {name: statistics.median(measured) for name, measured in times.items()}


def show(topic: str, title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table, and keep it as ``results/<topic>.json``."""
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(width=160).print(table)
    RESULTS.mkdir(exist_ok=True)
    content = {"title": title, "machine": machine(), "rows": [dict(zip(columns, row, strict=True)) for row in rows]}
    (RESULTS / f"{topic}.json").write_text(json.dumps(content, indent=1) + "\n")


def limit_gb_per_s(device: str) -> float:
    """Return how fast the machine streams: on the CPU the triad of ``triad.cpp``, on a device a copy of 1 GiB."""
    import torch

    if device == "cpu":
        from bench_adam import BYTES_A_PARAMETER, TriadBuilder

        triad, count = TriadBuilder().load().triad, 1 << 25
        arrays = [torch.randn(count) for _ in range(4)]
        seconds = interleaved({"triad": lambda: triad(*arrays)}, rounds=15)["triad"]
        return BYTES_A_PARAMETER * count / seconds / 1e9
    source = torch.empty(1 << 30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        torch.get_device_module(device).synchronize()

    return 2 * source.numel() / interleaved({"copy": copy}, rounds=15)["copy"] / 1e9


def machine() -> dict[str, str]:
    """Return what the figures depend on."""
    import torch

    from anyaccel.accelerator import host

    processor = host.processor()
    return {
        "cpu": f"{processor.name}, {processor.multi_processor_count} cores",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
