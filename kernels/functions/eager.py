"""Calls differentiable ops without the dispatcher's detour through Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._C import _are_functorch_transforms_active
from torch.autograd import forward_ad

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DifferentiableOp", "RecordedOp", "refuse_tangents"]

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class DifferentiableOp:
    """A differentiable torch op.

    Through the dispatcher, a Python backward costs a Python call even if no gradient is needed. Plain tensors take a shorter
    way: below autograd if none needs a gradient, otherwise through one ``autograd.Function``. Code that traces or changes
    calls (``torch.compile``, transforms, dispatch modes, tensor subclasses) sees the op itself.

    Args:
        op: the op's overload.
        backward: called with the context and the gradients of the results.
        setup_context: saves the values that ``backward`` needs.
        backward_twice: a ``backward`` whose own results are differentiable.
        results: the number of the op's results that a caller gets and gradients flow through; the others are for ``backward``.
            0 means all.
    """

    def __init__(
        self,
        op: Any,
        backward: Callable[..., Any],
        setup_context: Callable[..., None],
        backward_twice: Callable[..., Any],
        results: int = 0,
    ) -> None:
        self.op = op
        self.call_below = op._op  # without a Python frame
        self.backward = backward
        self.setup_context = setup_context
        self.backward_twice = backward_twice
        self.results = results
        self.given = 0 if results == 1 else slice(results)

    def __call__(self, *inputs: Any) -> Any:
        if torch.compiler.is_compiling() or _is_followed():
            return self._through_dispatcher(*inputs)
        needs_gradient = False
        for value in inputs:
            if type(value) in _PLAIN:
                needs_gradient = needs_gradient or value.requires_grad
            elif isinstance(value, torch.Tensor):
                return self._through_dispatcher(*inputs)
        if needs_gradient and torch.is_grad_enabled():
            return _apply(self, *inputs)
        with torch._C._AutoDispatchBelowAutograd():
            output = self.call_below(*inputs)
        return output[self.given] if self.results else output

    def _through_dispatcher(self, *inputs: Any) -> Any:
        refuse_tangents(self.op, inputs)
        try:
            output = self.op(*inputs)
        except RuntimeError as error:
            if "setup_context staticmethod" not in str(error):
                raise
            raise _no_derivative(self.op, "a transform of torch.func that differentiates") from error
        return output[self.given] if self.results else output


class RecordedOp(DifferentiableOp):
    """A differentiable torch op whose gradients are recorded in C++, by a second op that calls the first.

    Code that traces or changes calls sees the first one, too.

    Args:
        differentiable: the op, as in Python.
        recorded: the second op's overload.
    """

    def __init__(self, differentiable: DifferentiableOp, recorded: Any) -> None:
        self.__dict__.update(differentiable.__dict__)
        self.recorded = recorded._op  # without a Python frame

    def __call__(self, *inputs: Any) -> Any:
        if torch.compiler.is_compiling() or forward_ad._current_level >= 0 or _are_functorch_transforms_active():
            return self._through_dispatcher(*inputs)
        return self.recorded(*inputs)


def _is_followed() -> bool:
    """Return whether something must see every op call."""
    return (
        _are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack() > 0 or forward_ad._current_level >= 0
    )


def refuse_tangents(op: Any, inputs: tuple[Any, ...]) -> None:
    """Check that no input has a tangent: torch would drop it without a word, as if the derivative were 0.

    Raises:
        RuntimeError: when one has.
    """
    if forward_ad._current_level < 0:
        return
    for value in inputs:
        if isinstance(value, torch.Tensor) and forward_ad.unpack_dual(value).tangent is not None:
            raise _no_derivative(op, "a tangent of forward-mode differentiation")


def _no_derivative(op: Any, got: str) -> RuntimeError:
    name = op._schema.name.partition("::")[2]
    return RuntimeError(
        f"{name} failed: got {got}; expected reverse mode by torch.autograd, the only one that this op has. "
        f"Fix: use backward() or torch.autograd.grad(), or torch's own function for this part."
    )


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, called: DifferentiableOp, *inputs: Any) -> Any:
        ctx.called = called
        with torch._C._AutoDispatchBelowAutograd():
            output = called.call_below(*inputs)
        called.setup_context(ctx, inputs, output)
        return output[called.given] if called.results else output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        called = ctx.called
        backward = called.backward_twice if torch.is_grad_enabled() else called.backward
        given = backward(ctx, *grads)
        return None, *(given if isinstance(given, tuple) else (given,))


_apply: Any = super(torch.autograd.Function, _Recorded).apply  # skips a second check for transforms
