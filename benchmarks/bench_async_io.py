"""Writing a tensor to a file and reading it back: our backends, deepspeed's own (with libaio's headers), torch, dd and fio.

Every candidate writes or reads the same number of bytes on the same disk, past the page cache if it can. ``torch.save`` and
``torch.load`` use the page cache: their writes return before the data is on the disk, and their reads may not touch it; what they
leave to write is on the disk before the next candidate starts. fio, with as many blocks of the same size in flight, shows the
disk's limit: it moves the bytes four times, as its first pass also touches its memory. Medians of rounds in random order, and
each candidate's best round: the disk may be shared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from harness import show

from anyaccel import get_accelerator

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK, DEPTH = 1 << 20, 32
ROUNDS = 9
PASSES = 4
"""Of fio over its file."""


def deepspeeds() -> Any:
    """Return deepspeed's own module, or None if it cannot be built."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        from deepspeed.ops.op_builder import AsyncIOBuilder  # anyaccel: ignore[op-builder]

        return AsyncIOBuilder().load(verbose=False)  # anyaccel: ignore[op-builder]
    except Exception as error:  # noqa: BLE001 - its build may raise anything
        print(f"deepspeed's own is left out: {str(error).splitlines()[0]}")
        return None


def dd(source: str, target: str, count: int) -> None:
    """Copy with dd, bypassing the page cache for the file."""
    flag = "oflag=direct" if source == "/dev/zero" else "iflag=direct"
    command = ["dd", f"if={source}", f"of={target}", f"bs={BLOCK}", f"count={count}", flag]
    if source == "/dev/zero":
        command.append("conv=notrunc")
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def fio(way: str, path: str, mib: int) -> float:
    """Return the seconds that fio reports: it also starts a process and lays out its file."""
    job = [f"--rw={way}", f"--filename={path}", f"--size={mib}m", f"--bs={BLOCK}", f"--iodepth={DEPTH}"]
    fixed = ["--name=limit", "--direct=1", "--ioengine=io_uring", "--overwrite=1", "--output-format=json"]
    command = ["fio", *fixed, *job, f"--loops={PASSES}"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8")
    return (mib << 20) / float(json.loads(ran.stdout)["jobs"][0][way]["bw_bytes"])


def measured(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each; the candidates take turns in a new order each round, and may return their own seconds."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name in random.sample(list(candidates), len(candidates)):
            os.sync()
            began = time.perf_counter()
            own = candidates[name]()
            if number > 0:
                times[name].append(own if isinstance(own, float) else time.perf_counter() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=None, help="on the disk to measure")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    ours = get_accelerator().create_op_builder("AsyncIOBuilder").load()
    handles = {
        f"ours, {backend}": ours.aio_handle(BLOCK, DEPTH, False, True, options.threads, backend=backend)
        for backend in ("io_uring", "kernel_aio", "threads")
    }
    theirs = deepspeeds()
    if theirs is not None:
        handles["deepspeed"] = theirs.aio_handle(BLOCK, DEPTH, False, True, options.threads)
    tensors = {}
    # Each side has a tensor that it locked itself: deepspeed copies other memory.
    for name, handle in handles.items():
        side = "deepspeed" if name == "deepspeed" else "ours"
        if side not in tensors:
            tensors[side] = handle.new_cpu_locked_tensor(options.mib << 20, torch.empty(0, dtype=torch.uint8))
            tensors[side].random_(0, 255)
    tensor = tensors["ours"]
    rows = []
    saved, copied, limit, mine = (str(folder / name) for name in ("saved", "copied", "limit", "ours, io_uring"))
    for way in ("write", "read"):
        candidates: dict[str, Callable[[], object]] = {}
        for name, handle in handles.items():
            path, call = str(folder / name), handle.sync_pwrite if way == "write" else handle.sync_pread
            locked = tensors.get(name, tensor)
            candidates[name] = lambda call=call, path=path, locked=locked: call(locked, path)
        if way == "write":
            candidates["torch.save"] = lambda: torch.save(tensor, saved)
            candidates["dd, direct"] = lambda: dd("/dev/zero", copied, options.mib)
        else:
            candidates["torch.load"] = lambda: torch.load(saved)
            candidates["dd, direct"] = lambda: dd(mine, "/dev/null", options.mib)
        if shutil.which("fio"):
            candidates["fio"] = lambda way=way: fio(way, limit, options.mib)
        every = measured(candidates, ROUNDS)
        times = {name: statistics.median(found) for name, found in every.items()}
        for name, seconds in times.items():
            rate, best = (f"{(options.mib << 20) / one / 1e6:.0f}" for one in (seconds, min(every[name])))
            against = f"{times['deepspeed'] / seconds:.2f}" if "deepspeed" in times else "-"
            of_limit = f"{times['fio'] / seconds:.0%}" if "fio" in times else "-"
            rows.append([way, name, rate, best, against, f"{times['dd, direct'] / seconds:.0%}", of_limit])
    title = f"{options.mib} MiB, blocks of 1 MiB, {DEPTH} in flight, {options.threads} threads, medians of {ROUNDS}"
    show("async_io", title, ["way", "candidate", "MB/s", "best MB/s", "x deepspeed's", "of dd", "of fio"], rows)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
