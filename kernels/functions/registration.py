"""Registers gradients and result shapes for torch ops implemented in C++."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from .derivative import Derivative
from .eager import DifferentiableOp, RecordedOp
from .on_copies import register_on_copies
from .once import differentiable_once
from .process_bound import ProcessBound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["OpFunctions", "empty_contiguous", "has_derivatives_as_data", "mark_changed", "nothing", "row_statistics"]


def has_derivatives_as_data(functions: type[OpFunctions]) -> bool:
    """Return whether an op has a :class:`Derivative`, which C++ can record."""
    return any(isinstance(one, Derivative) for entry in functions.OPS.values() for one in entry)


def nothing(*_: Any, **__: Any) -> None:
    """Return None: the op only writes."""


class OpFunctions(ProcessBound):
    """Functions over the torch ops of a namespace; each op is an attribute: ``rms_norm`` is ``_rms_norm``.

    Args:
        namespace: the namespace of the torch ops; their library must be loaded.
        recorder: returns the torch op that records a :class:`Derivative` in C++, or None if there is none.

    Attributes:
        OPS: for each op, a function that returns empty tensors like its results; for a differentiable op also its
            :class:`Derivative`, or ``backward``, which takes the torch ops as its first argument, and ``setup_context``, both
            as in ``torch.library.register_autograd``; and if its last results are only for ``backward``, the number of the
            others.
        LATER: rarely used ops, which are looked up in ``_ops`` on use; they are not differentiable.
        HAS_SECOND_DERIVATIVES: whether the results of ``backward`` can be differentiated again; otherwise that raises
            ``RuntimeError``.
    """

    OPS: ClassVar[dict[str, tuple[Any, ...]]]
    LATER: ClassVar[tuple[str, ...]] = ()
    HAS_SECOND_DERIVATIVES: ClassVar[bool] = False

    def __init__(self, namespace: str, recorder: Callable[[], Callable[..., None] | None] = nothing) -> None:
        self._ops = getattr(torch.ops, namespace)
        self._library = torch.library.Library(namespace, "FRAGMENT")  # destroying it removes its registrations
        record = recorder() if has_derivatives_as_data(type(self)) else None
        for name, (fake, *derivative) in self.OPS.items():
            # register a kernel for the device "meta": register_fake searches every loaded module for its caller's file, in 4 ms
            self._library.impl(name, _on_one_device(f"{namespace}::{name}", fake), "Meta")
            if name in self.LATER or name.endswith("_backward"):  # a look-up takes a quarter of a millisecond
                continue
            op = getattr(self._ops, name).default
            register_on_copies(self._library, op)
            if derivative:
                op = self._differentiable(op, *derivative)
            if derivative and isinstance(derivative[0], Derivative) and record is not None:
                op = RecordedOp(op, _recorded(record, namespace, name, derivative[0]))
            setattr(self, f"_{name}", op)

    def _differentiable(self, op: Any, first: Any, *rest: Any) -> DifferentiableOp:
        if isinstance(first, Derivative):
            others = first.results < len(op._schema.returns)
            first, rest = first.gradients, (first.setup_context, *([first.results] if others else []))
        setup_context, *results = rest
        backward = functools.partial(first, self._ops)
        twice = backward if self.HAS_SECOND_DERIVATIVES else differentiable_once(backward)
        noted = functools.partial(_setup_with_statistics, setup_context, *results) if results else setup_context
        torch.library.register_autograd(op, twice, setup_context=noted, lib=self._library)
        return DifferentiableOp(op, backward, setup_context, twice, *results)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def _recorded(record: Callable[..., None], namespace: str, op: str, derivative: Derivative) -> Any:
    """Record an op's gradients in C++, and return the torch op to call in its place."""
    backward = f"{namespace}::{derivative.backward}"
    record(f"{namespace}::{op}", backward, derivative.takes, derivative.gives, derivative.results)
    return getattr(getattr(torch.ops, f"{namespace}_autograd"), op).default


def _setup_with_statistics(
    setup_context: Callable[..., None],
    results: int,
    ctx: Any,
    inputs: tuple[Any, ...],
    output: tuple[torch.Tensor, ...],
) -> None:
    setup_context(ctx, inputs, output)
    ctx.mark_non_differentiable(*output[results:])
    ctx.set_materialize_grads(False)  # none for the statistics


def _on_one_device(name: str, fake: Callable[..., Any]) -> Callable[..., Any]:
    """Return a fake that rejects tensors on several devices, like the kernels of real devices."""
    namespace, op = name.split("::")

    @functools.wraps(fake)
    def checked(*arguments: Any, **options: Any) -> Any:
        first: torch.Tensor | None = None
        schema = getattr(getattr(torch.ops, namespace), op).default._schema
        for described, value in zip(schema.arguments, [*arguments, *options.values()], strict=False):
            for tensor in value if isinstance(value, (list, tuple)) else [value]:
                if not isinstance(tensor, torch.Tensor):
                    continue
                first = tensor if first is None else first
                if tensor.device != first.device:
                    msg = (
                        f"{op} failed: got {described.name} on {tensor.device}; expected {first.device}, like the other "
                        f"tensors. Fix: pass {described.name}.to('{first.device}')."
                    )
                    raise RuntimeError(msg)
        return fake(*arguments, **options)

    return checked


def empty_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Return an uninitialised contiguous tensor of the same shape and dtype."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def row_statistics(x: torch.Tensor) -> torch.Tensor:
    """Return an uninitialised tensor with one number per row, in the dtype that kernels compute in."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x.new_empty(math.prod(x.shape[:-1]), dtype=dtype)  # Size.numel() would specialise a traced size


def mark_changed(tensors: Sequence[torch.Tensor]) -> None:
    """Mark tensors as modified, so that autograd rejects a backward pass that needs their old values."""
    if not torch.compiler.is_compiling():  # when compiling, the op's schema has this information
        torch.autograd.graph.increment_version(tensors)
