"""Which way data takes between the ranks of a group, and why."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

__all__ = ["Path", "paths"]

_NAMES = ("boot of the machine", "network namespace", "user", "value of ANYACCEL_SHM_HOST")


class Path(NamedTuple):
    """How two ranks of a group reach each other.

    Args:
        ranks: their numbers in the group, the smaller first.
        way: "memory" or "gloo".
        reason: why, in words.
    """

    ranks: tuple[int, int]
    way: str
    reason: str


def paths(group: dist.ProcessGroup | None = None) -> list[Path]:
    """Return for each pair of ranks of a group on shm whether data goes through memory or by gloo, and why.

    Args:
        group: the process group, whose backend for CPU tensors is meant; the default one otherwise.

    Returns:
        A ``Path`` for each pair: ``ranks`` in the group, the smaller first; ``way`` is "memory" or "gloo"; ``reason`` is a text.

    Raises:
        ValueError: when there is no group, or its CPU tensors are served by another backend.
    """
    from . import shm

    chosen: Any = dist.group.WORLD if group is None else group
    found = None if chosen is None else shm.hosts(chosen._get_backend(torch.device("cpu")))
    if found is None:
        what = "no process group" if chosen is None else f"a group on {dist.get_backend(chosen)}"
        if what == "a group on shm":
            what += " that TORCH_DISTRIBUTED_DEBUG=DETAIL wraps"
        fix = "call init_process_group('shm'), without TORCH_DISTRIBUTED_DEBUG=DETAIL"
        msg = f"paths failed: got {what}; expected one on shm. Fix: {fix}."
        raise ValueError(msg)
    hosts, identities = found
    host_of = {rank: number for number, ranks in enumerate(hosts) for rank in ranks}
    pairs = itertools.combinations(range(chosen.size()), 2)
    return [_path(pair, host_of, identities) for pair in pairs]


def _path(pair: tuple[int, int], host_of: dict[int, int], identities: list[str]) -> Path:
    first, second = pair
    if host_of.get(first) == host_of.get(second):
        return Path(pair, "memory", "the ranks share memory")
    last = len(_NAMES) - 1  # which may contain a slash
    apart = zip(_NAMES, identities[first].split("/", last), identities[second].split("/", last), strict=False)
    differing = [f"{name} ({one} and {other})" for name, one, other in apart if one != other]
    if differing:
        return Path(pair, "gloo", f"they differ in {', '.join(differing)}")
    return Path(pair, "gloo", "one of them could make or reach no memory; its warning says why")
