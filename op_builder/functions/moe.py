"""The functions of the op ``moe``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .registration import empty_contiguous, ops_of, register

__all__ = ["Moe", "Routing"]


@dataclass(frozen=True)
class Routing:
    """Where tokens go: entry ``e`` of the flattened ``(tokens, k)`` choices is token ``e // k``.

    Attributes:
        source: int64 ``(tokens * k,)``, the entry that each row in the order of experts comes from.
        places: int64 ``(tokens, k)``, the row that each entry goes to.
        counts: int64 ``(experts,)``, how many rows each expert has, in order.
    """

    source: torch.Tensor
    places: torch.Tensor
    counts: torch.Tensor


class Moe:
    """Gating, dispatch and combination of mixtures of experts, without capacity limits and without a host synchronisation.

    Args:
        namespace: of the torch ops to call.
    """

    def __init__(self, namespace: str) -> None:
        ops = ops_of(namespace)
        register(f"{namespace}::topk_gating", _gating_fake, (partial(_gating_backward, ops), _gating_keep))
        register(f"{namespace}::topk_gating_backward", _gating_backward_fake, None)
        register(f"{namespace}::moe_dispatch", _dispatch_fake, (partial(_dispatch_backward, ops), _dispatch_keep))
        register(f"{namespace}::moe_combine", _moe_combine_fake, (partial(_combine_backward, ops), _combine_keep))
        register(f"{namespace}::gather_rows", _gather_fake, None)
        register(f"{namespace}::combine_rows", _combine_fake, None)
        register(f"{namespace}::combine_weights_backward", _weights_backward_fake, None)
        self._ops = ops

    def topk_gating(
        self, logits: torch.Tensor, k: int, *, normalise: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Choose each token's best experts.

        Args:
            logits: ``(tokens, experts)``; float32, bfloat16 or float16 (float64 on the CPU), computed in float32.
            k: experts a token, 16 at most.
            normalise: let a token's weights add up to 1.

        Returns:
            The weights ``(tokens, k)``: probabilities, largest first, ties to the lower expert; the experts' numbers, int64
            ``(tokens, k)``; and all probabilities ``(tokens, experts)``. Both floats carry gradients.

        Raises:
            RuntimeError: naming the argument that does not fit.

        Source: tests/ops/moe_reference.py
        """
        weights, taken, probabilities = self._ops.topk_gating(logits, k, normalise)
        return weights, taken, probabilities

    def route(self, taken: torch.Tensor, experts: int) -> Routing:
        """Order the choices by expert, tokens in their order within each.

        Args:
            taken: int64 ``(tokens, k)``, from :meth:`topk_gating`.
            experts: how many there are.
        """
        flat = taken.flatten()
        ordered, source = torch.sort(flat, stable=True)
        places = torch.empty_like(source)
        places[source] = torch.arange(source.numel(), device=source.device)
        numbers = torch.arange(experts + 1, device=taken.device)
        ends = torch.searchsorted(ordered, numbers)
        return Routing(source, places.view_as(taken), ends[1:] - ends[:-1])

    def dispatch(self, x: torch.Tensor, routing: Routing) -> torch.Tensor:
        """Copy tokens into the order of experts.

        Args:
            x: ``(tokens, columns)``.
            routing: from :meth:`route`.

        Returns:
            ``(tokens * k, columns)``.

        Source: tests/ops/moe_reference.py
        """
        rows: torch.Tensor = self._ops.moe_dispatch(x, routing.source, routing.places)
        return rows

    def combine(self, rows: torch.Tensor, weights: torch.Tensor, routing: Routing) -> torch.Tensor:
        """Add up each token's rows by their weights.

        Args:
            rows: ``(tokens * k, columns)``, in the order of experts.
            weights: ``(tokens, k)``, from :meth:`topk_gating`.
            routing: from :meth:`route`.

        Returns:
            ``(tokens, columns)``.

        Source: tests/ops/moe_reference.py
        """
        combined: torch.Tensor = self._ops.moe_combine(rows, weights, routing.source, routing.places)
        return combined


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


def _dispatch_keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[2])


def _dispatch_backward(ops: Any, ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (places,) = ctx.saved_tensors
    return ops.combine_rows(grad, places, None), None, None


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
