"""Facts about this host and this process: NUMA nodes, resident memory, and the memory it may use.

In a container, this process may not use all of the machine's memory; the cgroup (v1 or v2) has the limit.
"""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .errors import UnsupportedError

if TYPE_CHECKING:
    import psutil

__all__ = [
    "Processor",
    "available_memory_bytes",
    "numa_node_count",
    "peak_resident_bytes",
    "processor",
    "reset_peak_resident",
    "resident_bytes",
    "total_memory_bytes",
    "utilization_percent",
]

_FILESYSTEM = Path("/")
_V1_UNLIMITED_BYTES = 1 << 60  # v1 writes "no limit" as a page-rounded 2**63; no machine has an exbibyte


@functools.cache
def _process() -> psutil.Process:
    import psutil  # not at the top: a quarter of an op's first load time, and most programs do not need it

    return psutil.Process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.cache_clear)


class Processor(NamedTuple):
    """The CPU's ``get_device_properties``; ``total_memory`` is in bytes."""

    name: str
    total_memory: int
    multi_processor_count: int


def processor() -> Processor:
    """Return this machine's processor, with the memory and the cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Processor(_model_name(), total_memory_bytes(), cores)


def _model_name() -> str:
    try:
        with (_FILESYSTEM / "proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def numa_node_count(root: Path = _FILESYSTEM) -> int:
    """Return the number of NUMA nodes that have cores; at least 1.

    Nodes without cores (memory only, such as high-bandwidth memory in flat mode) are not counted.
    """
    nodes = (root / "sys/devices/system/node").glob("node[0-9]*/cpulist")
    return max(1, sum(1 for node in nodes if node.read_text(encoding="utf-8").strip()))


def utilization_percent() -> int:
    """Return the percentage of all cores' time in use, measured for a tenth of a second."""
    import psutil

    return round(psutil.cpu_percent(interval=0.1))


def resident_bytes() -> int:
    """Return this process's current memory (its resident set), in bytes."""
    return int(_process().memory_info().rss)


def peak_resident_bytes() -> int:
    """Return the largest resident set since the process started or since :func:`reset_peak_resident`, in bytes."""
    status = Path("/proc/self/status")
    if not status.exists():
        return int(max(getattr(_process().memory_info(), "peak_wset", 0), resident_bytes()))
    for line in status.read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return max(int(line.split()[1]) * 1024, resident_bytes())
    return resident_bytes()


def reset_peak_resident() -> None:
    """Start a new measurement of the peak.

    Raises:
        UnsupportedError: if the kernel cannot reset it (not Linux).
    """
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    except OSError as error:
        member = "reset_peak_memory_stats"
        raise UnsupportedError(member, "cpu", f"resettable peak ({error.strerror})") from error


class _Cgroup(NamedTuple):
    limit_bytes: int
    usage_bytes: int
    reclaimable_bytes: int

    @property
    def free_bytes(self) -> int:
        return min(self.limit_bytes, max(0, self.limit_bytes - self.usage_bytes + self.reclaimable_bytes))


def total_memory_bytes(root: Path = _FILESYSTEM) -> int:
    """Return the memory that this process may use: the machine's, or its cgroup's limit if that is lower."""
    import psutil

    limits = [group.limit_bytes for group in _cgroups(root)]
    return int(min([psutil.virtual_memory().total, *limits]))


def available_memory_bytes(root: Path = _FILESYSTEM) -> int:
    """Return the memory that this process can still allocate without swapping or reaching a cgroup's limit."""
    free = [group.free_bytes for group in _cgroups(root)]
    import psutil

    return int(min([psutil.virtual_memory().available, *free]))


def _cgroups(root: Path) -> list[_Cgroup]:
    """Return every limited cgroup of this process; a limit on an ancestor applies too."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    groups = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            groups += _limited(root / "sys/fs/cgroup", path, ("memory.max", "memory.current", "inactive_file"))
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            groups += _limited(root / "sys/fs/cgroup/memory", path, names)
    return groups


def _limited(mount: Path, path: str, names: tuple[str, str, str]) -> list[_Cgroup]:
    """Walk from the process's group up to the mount; inside a container the inner path may not exist there."""
    limit_name, usage_name, inactive_name = names
    groups = []
    inner = mount / path.lstrip("/")
    for folder in [inner, *inner.parents]:
        limit = _bytes_in(folder / limit_name)
        if limit is not None and limit < _V1_UNLIMITED_BYTES:
            usage = _bytes_in(folder / usage_name) or 0
            groups.append(_Cgroup(limit, usage, _stat_bytes(folder / "memory.stat", inactive_name)))
        if folder == mount:
            break
    return groups


def _bytes_in(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _stat_bytes(file: Path, key: str) -> int:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{key} ")), 0)
