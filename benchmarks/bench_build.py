"""Builds: eight processes on one cold op, everything ahead of time, and ziglang instead of g++."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import show

ROUNDS = 3

LOADS = """
import sys, time, pathlib, torch, anyaccel
builder = anyaccel.get_accelerator().create_op_builder("CPUAdamBuilder")
ready, go = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
ready.touch()
while not go.exists():
    time.sleep(0.005)
started = time.perf_counter()
builder.load()
print("seconds:", time.perf_counter() - started)
"""

SECOND_OP = """
import sys, time, torch, anyaccel
from anyaccel.op_builder.cpu import CPUAdamBuilder
class Another(CPUAdamBuilder):
    def cxx_args(self):
        return [*super().cxx_args(), "-DROUND=" + sys.argv[1]]  # another op, which ziglang's own cache does not have
builder = Another()
started = time.perf_counter()
builder.load()
print("seconds:", time.perf_counter() - started)
"""


def said_seconds(process: subprocess.Popen[str]) -> float:
    output, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(errors)
    return float(output.split("seconds:")[1])


def start(code: str, *arguments: str | Path, **env: str | Path) -> subprocess.Popen[str]:
    environment = {**os.environ, **{name: str(value) for name, value in env.items()}}
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, encoding="utf-8"
    )


def slowest_of(count: int, folder: Path) -> float:
    """Start ``load()`` of a cold op in several processes at once, and return the slowest one's seconds."""
    folder.mkdir()
    ready = [folder / f"ready-{number}" for number in range(count)]
    processes = [start(LOADS, file, folder / "go", ANYACCEL_CACHE_DIR=folder / "cache") for file in ready]
    while not all(file.exists() for file in ready):
        time.sleep(0.01)
    (folder / "go").touch()
    return max(map(said_seconds, processes))


def together(folder: Path) -> list[str]:
    times: dict[int, list[float]] = {1: [], 8: []}
    for round_ in range(ROUNDS):
        for count, measured in times.items():
            measured.append(slowest_of(count, folder / f"{count}-{round_}"))
    one, eight = (statistics.median(measured) for measured in times.values())
    return ["8 processes, one cold op", f"{eight:.2f}", "1 process", f"{one:.2f}", f"{eight / one:.2f}", "1.3"]


def everything(folder: Path) -> list[str]:
    times = []
    for round_ in range(ROUNDS):
        started = time.perf_counter()
        command = [str(Path(sys.executable).parent / "anyaccel"), "build", "--all"]
        environment = {**os.environ, "ANYACCEL_CACHE_DIR": str(folder / f"all-{round_}")}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        times.append(time.perf_counter() - started)
    return ["anyaccel build --all, empty cache", f"{statistics.median(times):.1f}", "", "", "", "180 s"]


def without_compiler(folder: Path) -> list[list[str]]:
    zig = {"PATH": "/nowhere", "ZIG_GLOBAL_CACHE_DIR": folder / "zig", "ANYACCEL_CACHE_DIR": folder / "by-zig"}
    first = said_seconds(start(SECOND_OP, "first", **zig))
    times: dict[str, list[float]] = {"ziglang": [], "g++": []}
    for round_ in range(ROUNDS):
        times["ziglang"].append(said_seconds(start(SECOND_OP, str(round_), **zig)))
        times["g++"].append(
            said_seconds(start(SECOND_OP, str(round_), ANYACCEL_CACHE_DIR=folder / "by-gcc", CXX="g++"))
        )
    ours, gcc = (statistics.median(measured) for measured in times.values())
    return [
        ["first op without a compiler (ziglang)", f"{first:.1f}", "", "", "", "works"],
        ["second op (ziglang)", f"{ours:.2f}", "g++", f"{gcc:.2f}", f"{ours / gcc:.2f}", "2"],
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [together(folder), everything(folder), *without_compiler(folder)]
    show("build", "Building cpu_adam, medians", ["what", "s", "peer", "peer s", "ratio", "target"], rows)


if __name__ == "__main__":
    main()
