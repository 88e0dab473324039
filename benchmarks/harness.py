"""Measures candidates in turn, several rounds, and reports medians."""

from __future__ import annotations

import gc
import json
import os
import platform
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable


def _results() -> Path:
    """Return the folder for the results: what follows ``--results``, which no program's own parser sees."""
    if "--results" not in sys.argv:
        return Path(__file__).parent / "results"
    place = sys.argv.index("--results")
    _, folder = sys.argv[place : place + 2]
    del sys.argv[place : place + 2]
    return Path(folder)


RESULTS = _results()


def interleaved(candidates: dict[str, Callable[[], object]], rounds: int, calls: int = 1) -> dict[str, float]:
    """Return each candidate's median time in seconds a call.

    Every round times each of them once, in another order, right after an untimed call.
    """
    for candidate in candidates.values():
        candidate()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    gc.collect()
    order = list(candidates.items())
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)  # so that none always finds the caches as the same other one has left them
        for name, candidate in order:
            candidate()
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
    keep(topic, title, [dict(zip(columns, row, strict=True)) for row in rows])


def keep(topic: str, title: str, rows: list[dict[str, str]]) -> None:
    """Write ``results/<topic>.json``, over what an earlier call has written."""
    RESULTS.mkdir(exist_ok=True)
    content = {"title": title, "machine": machine(), "rows": rows}
    (RESULTS / f"{topic}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def keep_memory() -> None:
    """Start the program again with a malloc that keeps what is freed.

    By default glibc gives large blocks back to the system, and each use of fresh ones faults page after page: at 32 MiB that
    takes longer than any of these kernels, whoever's they are.
    """
    wanted = {"MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_MMAP_THRESHOLD_": str(1 << 34)}
    if not wanted.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **wanted})


@dataclass(frozen=True)
class Limit:
    """What the machine streams: on the CPU the triad of ``triad.cpp``, on a device a copy.

    Measured beside each row's candidates, as a shared host's memory changes from minute to minute.
    """

    run: Callable[[], object]
    moved_bytes: int

    def gb_per_s(self, seconds: float) -> float:
        """Return the rate, given the time of a run."""
        return self.moved_bytes / seconds / 1e9


def streaming_limit(device: str) -> Limit:
    """Return what to time beside the candidates."""
    import torch

    if device == "cpu":
        from bench_adam import BYTES_A_PARAMETER, TriadBuilder

        triad, count = TriadBuilder().load().triad, 1 << 24
        arrays = [torch.randn(count) for _ in range(4)]
        return Limit(lambda: triad(*arrays), BYTES_A_PARAMETER * count)
    source = torch.empty(1 << 30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        torch.get_device_module(device).synchronize()

    return Limit(copy, 2 * source.numel())


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
