"""shm against gloo between two hosts: network namespaces joined by a slow cable. Needs root and /dev/net/tun."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from bench_comm import Row, others, timed
from harness import show

import anyaccel.distributed  # noqa: F401  # registers "shm"

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
TWO_HOSTS = HERE.parent / "tests" / "distributed" / "two_hosts.sh"
LINKS = ("10:0.1:0", "10:1:0", "1:0.1:0", "1:1:0", "1:1:0.001")
SIZES = {"8 B": (8, 100), "64 KiB": (64 << 10, 20), "1 MiB": (1 << 20, 5), "16 MiB": (16 << 20, 1)}


def rows(groups: dict[str, Any]) -> Iterator[Row]:
    world = dist.get_world_size()
    for label, (size_bytes, repeats) in SIZES.items():
        x = torch.zeros(size_bytes // 4)
        calls: dict[str, Any] = {name: partial(dist.all_reduce, x, group=group) for name, group in groups.items()}
        # with four ranks on each host, shm sends once what gloo's ring sends for each rank
        yield Row(f"all_reduce {label}", calls, repeats, 0.5 if world >= 8 and size_bytes >= 1 << 20 else 1)
    for row in others(groups, peer=world // 2):
        yield Row(row.name, row.calls, min(row.repeats, 50 if "MiB" not in row.name else 3), 1)


def rank_main(local: int, ranks: int, folder: str, rounds: int, only: str) -> None:
    torch.set_num_threads(1)
    rank, world = int(os.environ["NODE"]) * ranks + local, 2 * ranks
    store = dist.FileStore(f"{folder}/store", world)
    dist.init_process_group("shm", store=store, rank=rank, world_size=world, timeout=timedelta(minutes=3))
    groups = {"shm": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    found = [(row.name, row.target, timed(row, rounds)) for row in rows(groups) if only in row.name]
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        Path(folder, "rows").write_text(json.dumps(found), encoding="utf-8")


def measured(program: str, link: str, ranks: int, rounds: int, only: str) -> list[tuple[str, float, dict[str, float]]]:
    """Return name, target and times of every row, over one cable."""
    with tempfile.TemporaryDirectory() as folder:
        command = shlex.join([
            sys.executable, "-W", "ignore", __file__, "--host", folder, "--ranks", str(ranks), "--rounds", str(rounds),
            "--only", only,
        ])  # fmt: skip
        shape = f"{program} {link.replace(':', ' ')}"
        subprocess.run([TWO_HOSTS, command], check=True, env={**os.environ, "SHAPED_LINK": shape})
        found: list[tuple[str, float, dict[str, float]]] = json.loads(Path(folder, "rows").read_text(encoding="utf-8"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="of each host")
    parser.add_argument("--links", nargs="+", default=LINKS, help="GBIT_PER_S:MILLISECONDS:LOSS; the delay is one way")
    parser.add_argument("--only", default="", help="part of the operations' names; results of others are kept")
    parser.add_argument("--host", help=argparse.SUPPRESS)  # be a host of a measurement, whose folder this is
    chosen = parser.parse_args()
    if chosen.host:
        multiprocessing.spawn(rank_main, (chosen.ranks[0], chosen.host, chosen.rounds, chosen.only), chosen.ranks[0])
        return
    compiler = os.environ.get("CXX") or shutil.which("g++") or "clang++"
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/shaped_link"
        subprocess.run([compiler, "-O2", "-std=c++20", HERE / "shaped_link.cpp", "-o", program, "-pthread"], check=True)
        table = []
        for ranks in chosen.ranks:
            for link in chosen.links:
                rate, delay, loss = map(float, link.split(":"))
                for name, target, found in measured(program, link, ranks, chosen.rounds, chosen.only):
                    table.append([
                        f"2 x {ranks}", f"{rate:g} Gbit/s, {delay:g} ms, {loss:.1%} lost", name,
                        f"{found['shm'] * 1e3:,.2f}", f"{found['gloo'] * 1e3:,.2f}",
                        f"{found['gloo'] / found['shm']:.2f}", f"{1 / target:.1f}",
                    ])  # fmt: skip
    columns = ["ranks", "link", "operation", "shm ms", "gloo ms", "gloo / shm", "target"]
    show("hosts", "shm and gloo between two hosts with a slow link, medians", columns, table, identity=3)


if __name__ == "__main__":
    main()
