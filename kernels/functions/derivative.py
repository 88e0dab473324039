"""Gradients that one call of another op computes, as data that Python and C++ (``csrc/autograd``) can follow."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Derivative"]


class Derivative:
    """How one call of another op computes an op's gradients; they have no derivatives of their own.

    Args:
        backward: the other op's name.
        takes: where each of its arguments comes from: ``"grad<i>"``, the gradient of a result; ``"input<i>"``; ``"result<i>"``;
            or ``"none"``. The gradient of an unused result is None, or zeros if the argument is not optional.
        gives: for each input, the number of the other op's result that is its gradient; -1 if it has none.
        results: the number of results that a caller gets and gradients flow through; they have one shape. The others are only
            for ``backward``.
    """

    def __init__(self, backward: str, takes: tuple[str, ...], gives: tuple[int, ...], results: int = 1) -> None:
        self.backward = backward
        self.takes = takes
        self.gives = gives
        self.results = results
        kinds = [take.rstrip("0123456789") for take in takes]
        numbers = [int(take[len(kind) :] or 0) for take, kind in zip(takes, kinds, strict=True)]
        kept = [place for place, kind in enumerate(kinds) if kind in ("input", "result")]
        first = {"input": 0, "result": len(gives)}
        self._keep = _picker([first[kinds[place]] + numbers[place] for place in kept])
        of_kept = {place: results + index for index, place in enumerate(kept)}
        of_grads = {place: number for place, number in enumerate(numbers) if kinds[place] == "grad"}
        none = results + len(kept)
        self._arrange = _picker([of_grads.get(place, of_kept.get(place, none)) for place in range(len(takes))])

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what :meth:`gradients` needs, as in ``torch.library.register_autograd``."""
        kept = self._keep((*inputs, *output) if isinstance(output, tuple) else (*inputs, output))
        ctx.others = [value for value in kept if not isinstance(value, torch.Tensor)]
        if ctx.others:
            kept = [value if isinstance(value, torch.Tensor) else None for value in kept]
        ctx.save_for_backward(*kept)
        if self.results > 1:
            ctx.set_materialize_grads(False)

    def gradients(self, ops: Any, ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of the inputs.

        Args:
            ops: the torch ops of the op's namespace.
            ctx: what :meth:`setup_context` kept.
            grads: the gradients of the results; None for unused ones.
        """
        call = getattr(ops, self.backward).default
        kept = ctx.saved_tensors
        if ctx.others:
            others = iter(ctx.others)
            kept = [next(others) if value is None else value for value in kept]
        arguments = self._arrange((*grads[: self.results], *kept, None))
        if self.results > 1 or grads[0] is None:
            given = next((grad for grad in grads if grad is not None), None)
            if given is None:
                return (None,) * len(self.gives)
            arguments = [
                torch.zeros_like(given) if value is None and described.type.kind() == "TensorType" else value
                for value, described in zip(arguments, call._schema.arguments, strict=True)
            ]
        computed = call(*arguments)
        computed = computed if isinstance(computed, tuple) else (computed,)
        return tuple([None if number < 0 else computed[number] for number in self.gives])


def _picker(places: list[int]) -> Callable[[tuple[Any, ...]], Sequence[Any]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: (values[places[0]],)
