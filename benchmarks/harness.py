"""Measures candidates in turn, in several rounds, and reports medians."""

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
    """Return the folder for results: the value of ``--results``, which is removed before programs parse their arguments."""
    if "--results" not in sys.argv:
        return Path(__file__).parent / "results"
    place = sys.argv.index("--results")
    _, folder = sys.argv[place : place + 2]
    del sys.argv[place : place + 2]
    return Path(folder)


RESULTS = _results()


def interleaved(candidates: dict[str, Callable[[], object]], rounds: int, calls: int = 1) -> dict[str, float]:
    """Return each candidate's median time per call in seconds.

    Every round times each candidate once, in a new order, right after an untimed call.
    """
    for candidate in candidates.values():
        candidate()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    gc.collect()
    order = list(candidates.items())
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)  # so that no candidate always runs after the same other one
        for name, candidate in order:
            candidate()
            started = time.perf_counter()
            for _ in range(calls):
                candidate()
            times[name].append((time.perf_counter() - started) / calls)
    return {name: statistics.median(measured) for name, measured in times.items()}


def show(topic: str, title: str, columns: list[str], rows: list[list[str]], identity: int = 0) -> None:
    """Print a table, and save it as ``results/<topic>.json``.

    With ``identity``, the number of columns that say what a row measures, earlier results of other rows are kept.
    """
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(width=160).print(table)
    found = records(columns, rows)
    keep(topic, title, with_earlier(topic, found, identity) if identity else found)


def with_earlier(topic: str, rows: list[dict[str, str]], identity: int) -> list[dict[str, str]]:
    """Return rows, in the places of earlier results that measured the same, and the other earlier results."""
    path = RESULTS / f"{topic}.json"
    earlier = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    new = {tuple(row.values())[:identity]: row for row in rows}
    return [new.pop(tuple(row.values())[:identity], row) for row in earlier] + list(new.values())


def records(columns: list[str], rows: list[list[str]]) -> list[dict[str, str]]:
    """Return rows as ``keep`` takes them."""
    return [dict(zip(columns, row, strict=True)) for row in rows]


def keep(topic: str, title: str, rows: list[dict[str, str]]) -> None:
    """Write ``results/<topic>.json``, replacing earlier results."""
    RESULTS.mkdir(exist_ok=True)
    content = {"title": title, "machine": machine(), "rows": rows}
    (RESULTS / f"{topic}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def keep_memory() -> None:
    """Restart the program with a malloc that does not return freed memory to the system.

    By default, glibc returns large blocks to the system, and each use of a new block causes page faults: at 32 MiB they
    take longer than any of these kernels.
    """
    wanted = {"MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_MMAP_THRESHOLD_": str(1 << 34)}
    if not wanted.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **wanted})


@dataclass(frozen=True)
class Limit:
    """The machine's streaming limit: on the CPU the triad in ``triad.cpp``, on a device a copy.

    Measured together with each row's candidates, as a shared host's memory bandwidth changes from minute to minute.
    """

    run: Callable[[], object]
    moved_bytes: int

    def gb_per_s(self, seconds: float) -> float:
        """Return the bandwidth, given the time of a run."""
        return self.moved_bytes / seconds / 1e9


def streaming_limit(device: str) -> Limit:
    """Return the limit to time together with the candidates."""
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
    """Return the properties of the machine that affect the results."""
    import torch

    from anyaccel import get_accelerator
    from anyaccel.accelerator import host

    processor, accelerator = host.processor(), get_accelerator()
    device = {} if accelerator.device_name() == "cpu" else {"device": accelerator.get_device_properties().name}
    return {
        **device,
        "cpu": f"{processor.name}, {processor.multi_processor_count} cores",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
