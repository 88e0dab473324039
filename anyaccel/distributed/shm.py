"""``torch.distributed``'s backend for CPU tensors of ranks that share memory."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo

from ..op_builder.all_ops import builder_class
from .environment import pretended_host

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["BACKEND_NAME", "monitored_barrier", "register"]

BACKEND_NAME = "shm"

_logger = logging.getLogger(__name__)


def register() -> None:
    """Make ``"shm"`` a backend of ``torch.distributed``; once more changes nothing."""
    if BACKEND_NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND_NAME, _create, extended_api=True, devices=["cpu"])


def monitored_barrier(group: dist.ProcessGroup | None = None, timeout: timedelta | None = None) -> None:
    """Wait until every rank is here, as ``dist.monitored_barrier`` does, which torch reserves for gloo.

    Args:
        group: the process group; the default one otherwise.
        timeout: how long to wait; the group's own otherwise.

    Raises:
        torch.distributed.DistBackendError: naming every rank that did not come in time.
    """
    chosen: Any = dist.group.WORLD if group is None else group
    if chosen is None:
        msg = "monitored_barrier failed: got no process group; expected one. Fix: call init_process_group first."
        raise ValueError(msg)
    arguments = () if timeout is None else (timeout,)
    chosen.monitored_barrier(*arguments)


def _create(options: Any, _backend_options: Any = None) -> Any:
    """Return the backend of a new group; torch calls this on every rank of it."""
    builder = builder_class("ShmCommBuilder", "cpu")
    assert builder is not None  # noqa: S101  # the table has it

    def make_leaders(host: int, hosts: int, generation: int) -> Any:
        _logger.info("the group spans %d hosts: gloo between their first ranks", hosts)
        store = PrefixStore(f"leaders/{generation}/", options.store)
        return ProcessGroupGloo(store, host, hosts, timeout=options.timeout)

    return builder().load().create(
        options.store, options.group_rank, options.group_size, options.timeout,
        list(options.global_ranks_in_group), pretended_host(), make_leaders,
    )  # fmt: skip
