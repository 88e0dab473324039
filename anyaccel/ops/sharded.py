"""Parameters of FSDP2 and other ``DTensor``: kernels work on each rank's own shard."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["are_sharded", "mark_sharded", "norm_of", "shards", "shards_of_lists"]


def are_sharded(tensors: Iterable[Any]) -> bool:
    """Return whether a tensor is a ``DTensor``; without the import of its module there cannot be one."""
    return any(map(_is_sharded, tensors)) if "torch.distributed.tensor" in sys.modules else False


def _is_sharded(tensor: Any) -> bool:
    return isinstance(tensor, sys.modules["torch.distributed.tensor"].DTensor)


def shards(tensors: Sequence[Any]) -> list[torch.Tensor]:
    """Return this rank's shard of each ``DTensor``, and ordinary tensors unchanged."""
    return [tensor.to_local() if _is_sharded(tensor) else tensor for tensor in tensors]


def shards_of_lists(lists: list[list[Any]]) -> list[list[Any]]:
    """Return an optimizer's lists, with this rank's shards if its parameters are sharded.

    Args:
        lists: parameters, gradients, and each of the states.

    Raises:
        RuntimeError: when a gradient is laid out in another way than its parameter, so that shards would not fit.
    """
    if not are_sharded(lists[0]):
        return lists
    for param, grad in zip(lists[0], lists[1], strict=True):
        expected, got = getattr(param, "placements", None), getattr(grad, "placements", None)
        if expected != got:
            msg = (
                f"step failed: got a gradient placed as {got}; expected {expected}, as its parameter is. "
                f"Fix: call grad.redistribute(placements=param.placements)."
            )
            raise RuntimeError(msg)
    return [shards(one) for one in lists]


def mark_sharded(params: list[Any]) -> None:
    """Mark ``DTensor`` parameters as modified, whose shards an optimizer has written: autograd asks the whole tensor."""
    if are_sharded(params) and not torch.compiler.is_compiling():
        torch.autograd.graph.increment_version(params)


def norm_of(grads: Sequence[Any], l2norm: Any) -> torch.Tensor:
    """Return the norm of all gradients together, whole ones and sharded ones, the same on every rank.

    Args:
        grads: tensors and ``DTensor``; those of one layout are summed up in one exchange for each mesh dimension.
        l2norm: returns the norm of tensors, float32 ``(1,)``, and of each.

    Raises:
        RuntimeError: for a gradient that holds partial sums, not yet added over ranks.
    """
    import torch.distributed as dist

    alike: dict[Any, list[Any]] = {}
    for grad in grads:
        alike.setdefault((getattr(grad, "device_mesh", None), getattr(grad, "placements", ())), []).append(grad)
    squares = []
    for (mesh, placements), some in alike.items():
        square = l2norm(shards(some))[0].square()
        for dimension, placement in enumerate(placements):
            if placement.is_partial():
                msg = (
                    f"clip_grad_norm_ failed: got a gradient placed as {placements}; expected sharded or replicated. "
                    f"Fix: call grad.redistribute(placements=param.placements)."
                )
                raise RuntimeError(msg)
            if not placement.is_replicate():  # Shard, or the strided shards of FSDP over tensor parallelism
                dist.all_reduce(square, group=mesh.get_group(dimension))
        squares.append(square)
    return torch.stack(squares).sum(0).sqrt()
