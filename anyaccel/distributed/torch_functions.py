"""Functions of torch that name the backends they work with, extended to one more.

``dist.monitored_barrier`` refuses every backend but gloo, ``_set_pg_timeout`` warns and does nothing, and DDP's logging data
says "custom".
"""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

__all__ = ["extend", "monitored_barrier", "set_timeout"]


def monitored_barrier(
    group: dist.ProcessGroup | None = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Wait until every rank is here, as ``dist.monitored_barrier`` does, which torch reserves for gloo.

    Args:
        group: the process group; the default one otherwise.
        timeout: how long to wait; the group's own otherwise.
        wait_all_ranks: name every rank that did not come in time, instead of the first.

    Raises:
        torch.distributed.DistBackendError: naming ranks that did not come in time.
        ValueError: when there is no process group.
    """
    chosen: Any = dist.group.WORLD if group is None else group
    if chosen is None:
        msg = "monitored_barrier failed: there is no process group. Fix: call init_process_group first."
        raise ValueError(msg)
    arguments = () if timeout is None else (timeout,)
    chosen.monitored_barrier(*arguments, wait_all_ranks=wait_all_ranks)


def set_timeout(timeout: timedelta, group: dist.ProcessGroup | None = None) -> None:
    """Set how long a group's operations may take from now on, as torch's ``_set_pg_timeout`` does for gloo and nccl.

    Args:
        timeout: longer than 0.
        group: the process group, whose CPU backend is meant; the default one otherwise.
    """
    chosen: Any = dist.group.WORLD if group is None else group
    chosen._get_backend(torch.device("cpu")).set_timeout(timeout)


@functools.cache
def extend(backend: str) -> None:
    """Let torch's functions serve groups whose backend for CPU tensors has this name."""

    def serves(group: dist.ProcessGroup | None) -> bool:
        chosen = dist.group.WORLD if group is None else group
        cpu = torch.device("cpu")
        if not isinstance(chosen, dist.ProcessGroup) or cpu not in chosen._device_types:
            return False
        return bool(chosen._get_backend(cpu).name() == backend)

    torchs_barrier, torchs_timeout = distributed_c10d.monitored_barrier, distributed_c10d._set_pg_timeout

    @functools.wraps(torchs_barrier)
    def barrier(
        group: dist.ProcessGroup | None = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        if not serves(group):
            torchs_barrier(group, timeout, wait_all_ranks)
            return
        seconds = timedelta(seconds=timeout) if isinstance(timeout, float) else timeout
        monitored_barrier(group, seconds, wait_all_ranks)

    @functools.wraps(torchs_timeout)
    def set_pg_timeout(timeout: timedelta, group: dist.ProcessGroup | None = None) -> None:
        chosen: Any = dist.group.WORLD if group is None else group
        is_served = serves(group)
        if is_served:
            set_timeout(timeout, group)
        if not is_served or len(chosen._device_types) > 1:  # of "cpu:shm,cuda:nccl", the other backend is torch's
            torchs_timeout(timeout, group)

    torchs_data: Any = DistributedDataParallel._get_ddp_logging_data

    @functools.wraps(torchs_data)
    def logging_data(model: Any) -> dict[str, Any]:
        data: dict[str, Any] = torchs_data(model)
        return {**data, "backend_name": backend} if serves(model.process_group) else data

    setattr(DistributedDataParallel, torchs_data.__name__, logging_data)
    for module in (distributed_c10d, dist):
        for name, function in (("monitored_barrier", barrier), ("_set_pg_timeout", set_pg_timeout)):
            if hasattr(module, name):
                setattr(module, name, function)
