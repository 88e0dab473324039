"""Gradients that one call of another op computes, as data that Python and C++ (``csrc/autograd``) can follow."""

from __future__ import annotations

from typing import Any

import torch

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
        self._parsed = [(kind, int(take[len(kind) :] or 0)) for take, kind in zip(takes, kinds, strict=True)]

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what :meth:`gradients` needs, as in ``torch.library.register_autograd``."""
        places = {"input": inputs, "result": output if isinstance(output, tuple) else (output,)}
        kept = [places[kind][number] for kind, number in self._parsed if kind in places]
        ctx.save_for_backward(*(value if isinstance(value, torch.Tensor) else None for value in kept))
        ctx.others = [None if isinstance(value, torch.Tensor) else value for value in kept]
        ctx.set_materialize_grads(False)

    def gradients(self, ops: Any, ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of the inputs.

        Args:
            ops: the torch ops of the op's namespace.
            ctx: what :meth:`setup_context` kept.
            grads: the gradients of the results; None for unused ones.
        """
        given = next((grad for grad in grads if grad is not None), None)
        if given is None:
            return (None,) * len(self.gives)
        call = getattr(ops, self.backward).default
        kept = iter(
            [other if saved is None else saved for saved, other in zip(ctx.saved_tensors, ctx.others, strict=True)]
        )
        arguments: list[Any] = []
        for described, (kind, number) in zip(call._schema.arguments, self._parsed, strict=True):
            if kind == "grad" and grads[number] is None and described.type.kind() == "TensorType":
                arguments.append(torch.zeros_like(given))
            elif kind == "grad":
                arguments.append(grads[number])
            else:
                arguments.append(None if kind == "none" else next(kept))
        computed = call(*arguments)
        computed = computed if isinstance(computed, tuple) else (computed,)
        return tuple(None if number < 0 else computed[number] for number in self.gives)
