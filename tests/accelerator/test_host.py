"""Memory limits of cgroups, v1 and v2, read from made-up file systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from anyaccel.accelerator import host

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


def _write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")


def test_without_cgroups_the_machine_is_the_limit(tmp_path: Path) -> None:
    assert host.total_memory_bytes(tmp_path) == psutil.virtual_memory().total


def test_v2_limit_and_usage(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/user.slice/job"
    _write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/job",
            f"{group}/memory.max": str(GIB),
            f"{group}/memory.current": str(GIB // 2),
            f"{group}/memory.stat": f"anon 1\ninactive_file {GIB // 4}",
        },
    )
    assert host.total_memory_bytes(tmp_path) == GIB
    assert host.available_memory_bytes(tmp_path) == GIB // 2 + GIB // 4


def test_v2_limit_of_an_ancestor_binds_too(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/outer/inner",
            "sys/fs/cgroup/outer/inner/memory.max": "max",
            "sys/fs/cgroup/outer/memory.max": str(2 * GIB),
            "sys/fs/cgroup/outer/memory.current": str(2 * GIB + 5),
        },
    )
    assert host.total_memory_bytes(tmp_path) == 2 * GIB
    assert host.available_memory_bytes(tmp_path) == 0


def test_v2_path_that_does_not_exist_inside_a_container(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../../pod",
            "sys/fs/cgroup/memory.max": str(GIB),
            "sys/fs/cgroup/memory.current": "0",
        },
    )
    assert host.total_memory_bytes(tmp_path) == GIB


@pytest.mark.parametrize("limit", [str(GIB), str((1 << 63) - 4096)])
def test_v1_limit(tmp_path: Path, limit: str) -> None:
    mount = "sys/fs/cgroup/memory"
    _write(
        tmp_path,
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/x\n2:memory:/docker/abc",
            f"{mount}/memory.limit_in_bytes": limit,
            f"{mount}/memory.usage_in_bytes": str(GIB // 4),
            f"{mount}/memory.stat": "total_inactive_file 4096",
        },
    )
    assert host.total_memory_bytes(tmp_path) == min(int(limit), psutil.virtual_memory().total)
    if limit == str(GIB):
        assert host.available_memory_bytes(tmp_path) == GIB - GIB // 4 + 4096


def test_numa_nodes_without_cores_do_not_count(tmp_path: Path) -> None:
    nodes = "sys/devices/system/node"
    _write(tmp_path, {f"{nodes}/node0/cpulist": "0-3", f"{nodes}/node1/cpulist": "4-7", f"{nodes}/node2/cpulist": ""})
    assert host.numa_node_count(tmp_path) == 2
    assert host.numa_node_count(tmp_path / "nothing") == 1


def test_processor_has_a_name_and_cores() -> None:
    processor = host.processor()
    assert processor.name
    assert processor.multi_processor_count >= 1
    assert processor.total_memory == host.total_memory_bytes()
