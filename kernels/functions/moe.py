"""The functions of the op ``moe``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from .derivative import Derivative
from .registration import OpFunctions, empty_contiguous

__all__ = ["MoeFunctions", "Routing"]


@dataclass(frozen=True)
class Routing:
    """The routing of tokens: entry ``e`` of the flattened ``(tokens, k)`` choices belongs to token ``e // k``.

    Attributes:
        source: int64 ``(tokens * k,)``, the entry of each row in expert order.
        places: int64 ``(tokens, k)``, the row of each entry.
        counts: int64 ``(experts,)``, the number of rows of each expert.
    """

    source: torch.Tensor
    places: torch.Tensor
    counts: torch.Tensor


def _computed(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _gating_fake(logits: torch.Tensor, k: int, normalise: bool) -> tuple[torch.Tensor, ...]:
    tokens, experts = logits.shape
    dtype = _computed(logits.dtype)
    weights = logits.new_empty((tokens, k), dtype=dtype)
    return weights, weights.to(torch.int64), logits.new_empty((tokens, experts), dtype=dtype)


def _gating_keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    logits, _, ctx.normalise = inputs
    _, taken, probabilities = output
    ctx.dtype = logits.dtype
    ctx.mark_non_differentiable(taken)
    ctx.save_for_backward(probabilities, taken)


def _gating_backward(
    ops: Any, ctx: Any, grad_weights: torch.Tensor, _: Any, grad_probabilities: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    probabilities, taken = ctx.saved_tensors
    grad = ops.topk_gating_backward(grad_weights, grad_probabilities, probabilities, taken, ctx.normalise, ctx.dtype)
    return grad, None, None


def _gating_backward_fake(
    grad_weights: torch.Tensor, grad_probabilities: torch.Tensor, probabilities: torch.Tensor, taken: torch.Tensor,
    normalise: bool, dtype: torch.dtype,
) -> torch.Tensor:  # fmt: skip
    return empty_contiguous(probabilities).to(dtype)


def _dispatch_fake(x: torch.Tensor, source: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return x.new_empty((source.numel(), x.shape[1]))


def _moe_combine_fake(
    rows: torch.Tensor, weights: torch.Tensor, source: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    return rows.new_empty((places.shape[0], rows.shape[1]))


def _combine_keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _combine_backward(ops: Any, ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    rows, weights, source, places = ctx.saved_tensors
    grad_rows = ops.gather_rows(grad, source, weights.flatten(), places.shape[1])
    return grad_rows, ops.combine_weights_backward(grad, rows, places), None, None


def _gather_fake(x: torch.Tensor, source: torch.Tensor, weights: torch.Tensor | None, divisor: int) -> torch.Tensor:
    return x.new_empty((source.numel(), x.shape[1]))


def _combine_fake(x: torch.Tensor, places: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty((places.shape[0], x.shape[1]))


def _weights_backward_fake(grad: torch.Tensor, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return x.new_empty(places.shape, dtype=_computed(x.dtype))


class MoeFunctions(OpFunctions):
    """Gating, dispatch and combination of mixtures of experts, without capacity limits and without a host synchronisation."""

    OPS: ClassVar = {
        "topk_gating": (_gating_fake, _gating_backward, _gating_keep),
        "topk_gating_backward": (_gating_backward_fake,),
        "moe_dispatch": (_dispatch_fake, Derivative("combine_rows", ("grad0", "input2", "none"), (0, -1, -1))),
        "moe_combine": (_moe_combine_fake, _combine_backward, _combine_keep),
        "gather_rows": (_gather_fake,),
        "combine_rows": (_combine_fake,),
        "combine_weights_backward": (_weights_backward_fake,),
    }

    def topk_gating(
        self, logits: torch.Tensor, k: int, *, normalise: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See :func:`anyaccel.ops.topk_gating`."""
        weights, taken, probabilities = self._topk_gating(logits, k, normalise)
        return weights, taken, probabilities

    def route(self, taken: torch.Tensor, experts: int) -> Routing:
        """See :func:`anyaccel.ops.route`."""
        if taken.dtype != torch.int64 or taken.dim() != 2 or experts < 0:
            msg = (
                f"route failed: got a {taken.dtype} of {taken.dim()} dimensions and {experts} experts; expected torch.int64, "
                f"(tokens, k), and 0 or more. Fix: pass the taken that topk_gating returned."
            )
            raise ValueError(msg)
        flat = taken.flatten()
        ordered, source = torch.sort(flat, stable=True)
        places = torch.empty_like(source)
        places[source] = torch.arange(source.numel(), device=source.device)
        numbers = torch.arange(experts + 1, device=taken.device)
        ends = torch.searchsorted(ordered, numbers)
        return Routing(source, places.view_as(taken), ends[1:] - ends[:-1])

    def dispatch(self, x: torch.Tensor, routing: Routing) -> torch.Tensor:
        """See :func:`anyaccel.ops.dispatch`."""
        rows: torch.Tensor = self._moe_dispatch(x, routing.source, routing.places)
        return rows

    def combine(self, rows: torch.Tensor, weights: torch.Tensor, routing: Routing) -> torch.Tensor:
        """See :func:`anyaccel.ops.combine`."""
        combined: torch.Tensor = self._moe_combine(rows, weights, routing.source, routing.places)
        return combined
