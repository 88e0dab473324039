"""All-reduce as a ring of messages, over any backend that has send and recv: Patarasuk & Yuan, 2009."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ..accelerator.errors import AnyaccelError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RingError", "ring_all_reduce"]

_CHUNK_BYTES = 8 << 20


class RingError(AnyaccelError, RuntimeError):
    """A neighbour in the ring could not be reached."""


@dataclass(frozen=True)
class _Tick:
    """One exchange: a chunk goes to the next rank, another comes from the one before."""

    sent: torch.Tensor
    received: torch.Tensor
    adds: bool


def ring_all_reduce(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None, *, chunk_bytes: int = _CHUNK_BYTES
) -> torch.Tensor:
    """Sum a tensor over the ranks, in place: a reduce-scatter around the ring, then an all-gather.

    Each rank sends ``2 * (n - 1) / n`` of the tensor. It travels in chunks: one is on its way while the one before is added.
    The result has the same bits on every rank.

    Args:
        tensor: any shape, contiguous, of a floating dtype; bfloat16 and float16 are rounded at every rank that they pass.
        group: the process group; the default one otherwise.
        chunk_bytes: how much travels at once.

    Returns:
        The tensor.

    Raises:
        ValueError: when the tensor is not contiguous, its dtype is not floating or has 8 bits, or chunk_bytes is not positive.
        RingError: when a neighbour has died or did not answer in time; the tensor is then undefined.

    Source: Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms, 2009; tests/distributed/test_ring.py
    """
    can_add = tensor.is_floating_point() and tensor.element_size() > 1 and not tensor.is_meta  # float8 has no sum
    if not can_add or not tensor.is_contiguous() or chunk_bytes <= 0:
        msg = (
            f"ring_all_reduce failed: got a tensor of {tensor.dtype} with strides {tensor.stride()} and "
            f"chunk_bytes={chunk_bytes}; expected a contiguous floating-point tensor and a "
            f"positive size. Fix: pass tensor.float().contiguous(), and leave chunk_bytes out."
        )
        raise ValueError(msg)
    with torch.no_grad():
        flat = tensor.view(-1)
        chunk = max(1, chunk_bytes // tensor.element_size())
        ticks = list(_ticks(flat, dist.get_rank(group), dist.get_world_size(group), chunk))
        _turn(ticks, flat.new_empty((2, chunk)), group)
    return tensor


def _ticks(flat: torch.Tensor, rank: int, world: int, chunk: int) -> Iterator[_Tick]:
    """Yield a rank's exchanges in order; a chunk that is sent was received, and added to, a whole step before."""
    longest = -(-flat.numel() // world)
    parts = [flat[index * longest : (index + 1) * longest] for index in range(world)]
    for adds in (True, False):
        for step in range(world - 1):
            first = rank - step if adds else rank + 1 - step
            sent, received = parts[first % world], parts[(first - 1) % world]
            for start in range(0, longest, chunk):
                yield _Tick(sent[start : start + chunk], received[start : start + chunk], adds)


def _turn(ticks: list[_Tick], scratch: torch.Tensor, group: dist.ProcessGroup | None) -> None:
    """Run the exchanges, each one begun before the one before is settled where it does not need its result."""
    pending: list[tuple[_Tick, torch.Tensor, list[dist.Work]]] = []
    try:
        for index, tick in enumerate(ticks):
            while pending and (len(pending) > 1 or _is_same(tick.sent, pending[0][0].received)):
                _settle(*pending.pop(0))
            arriving = scratch[index % 2, : tick.received.numel()] if tick.adds else tick.received
            pending.append((tick, arriving, _exchange(tick.sent, arriving, group)))
        for one in pending:
            _settle(*one)
    except RuntimeError as error:
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        msg = (
            f"ring_all_reduce failed: got an error from a neighbour of rank {rank}, {(rank - 1) % world} or "
            f"{(rank + 1) % world}: {error}; expected both to take part. Fix: look for the error in their logs, and restart "
            f"the ranks."
        )
        raise RingError(msg) from error


def _is_same(sent: torch.Tensor, received: torch.Tensor) -> bool:
    return sent.numel() > 0 and sent.data_ptr() == received.data_ptr()


def _exchange(sent: torch.Tensor, arriving: torch.Tensor, group: dist.ProcessGroup | None) -> list[dist.Work]:
    """Begin an exchange with the neighbours; in one batch, because NCCL would otherwise wait for itself."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    operations = []
    if sent.numel():
        operations.append(dist.P2POp(dist.isend, sent, group=group, group_peer=(rank + 1) % world))
    if arriving.numel():
        operations.append(dist.P2POp(dist.irecv, arriving, group=group, group_peer=(rank - 1) % world))
    works: list[dist.Work] = dist.batch_isend_irecv(operations) if operations else []
    return works


def _settle(tick: _Tick, arriving: torch.Tensor, works: list[dist.Work]) -> None:
    for work in works:
        work.wait()
    if tick.adds:
        tick.received.add_(arriving)
