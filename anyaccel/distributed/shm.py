"""``torch.distributed``'s backend for CPU tensors of ranks that share memory."""

from __future__ import annotations

import functools
import logging
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo

from ..op_builder import OpError
from ..op_builder.all_ops import builder_class
from .environment import pretended_host

__all__ = ["before_python_ends", "create", "create_or_gloo", "hosts"]

_logger = logging.getLogger(__name__)
_LONGEST = timedelta(days=3650)  # gloo cannot add longer ones to a clock


@functools.cache
def _module() -> Any:
    """Return the backend's module, which is built where needed; later groups of the process look at no file for it."""
    builder = builder_class("ShmCommBuilder", "cpu")
    assert builder is not None  # noqa: S101  # the table has it
    return builder().load()


def before_python_ends() -> None:
    """Let callbacks that are due run, up to some seconds; then no thread of the backend touches Python's objects any more."""
    if _module.cache_info().currsize:
        _module().before_python_ends()


def create(store: Any, rank: int, ranks: int, timeout: timedelta, global_ranks: list[int]) -> Any:
    """Return the backend of a new group; C++ calls this too, where a group is split."""

    def make_gloo(name: str, number: int, count: int) -> Any:
        _logger.info("the group spans hosts: gloo connects rank %d of %d as %s", number, count, name)
        return ProcessGroupGloo(PrefixStore(name, store), number, count, timeout=min(timeout, _LONGEST))

    return _module().create(store, rank, ranks, timeout, global_ranks, pretended_host(), make_gloo)


def create_or_gloo(store: Any, rank: int, ranks: int, timeout: timedelta, global_ranks: list[int]) -> Any:
    """Return the backend of a new group, like :func:`create`; gloo's on every rank if one of them cannot load shm."""
    problem = ""
    try:
        _module()
    except OpError as error:
        problem = str(error)
    store.set(f"shm/problem/{rank}", problem)
    problems = [store.get(f"shm/problem/{one}").decode() for one in range(ranks)]
    if not any(problems):
        return create(store, rank, ranks, timeout, global_ranks)
    if problem:
        _logger.warning("shm cannot be loaded here, so gloo connects the ranks: %s", problem)
    return ProcessGroupGloo(PrefixStore("gloo", store), rank, ranks, timeout=min(timeout, _LONGEST))


def hosts(backend: Any) -> tuple[list[list[int]], list[str]] | None:
    """Return the ranks of each host and what names each rank's host; None for another backend, empty on one host."""
    found: tuple[list[list[int]], list[str]] | None = _module().hosts(backend)
    return found
