"""``torch.distributed``'s backend for CPU tensors of ranks that share memory."""

from __future__ import annotations

import functools
import logging
from typing import Any

from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo

from ..op_builder.all_ops import builder_class
from .environment import pretended_host

__all__ = ["create"]

_logger = logging.getLogger(__name__)


@functools.cache
def _module() -> Any:
    """Return the backend's module, which is built where needed; later groups of the process look at no file for it."""
    builder = builder_class("ShmCommBuilder", "cpu")
    assert builder is not None  # noqa: S101  # the table has it
    return builder().load()


def create(options: Any) -> Any:
    """Return the backend of a new group, of which torch's options tell the store, the ranks and the timeout."""

    def make_leaders(host: int, hosts: int, generation: int) -> Any:
        _logger.info("the group spans %d hosts: gloo between their first ranks", hosts)
        store = PrefixStore(f"leaders/{generation}/", options.store)
        return ProcessGroupGloo(store, host, hosts, timeout=options.timeout)

    return _module().create(
        options.store, options.group_rank, options.group_size, options.timeout,
        list(options.global_ranks_in_group), pretended_host(), make_leaders,
    )  # fmt: skip
