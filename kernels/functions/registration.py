"""Registers gradients and result shapes for torch ops implemented in C++."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.autograd.function import once_differentiable

from .eager import DifferentiableOp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["OpFunctions", "empty_contiguous", "mark_changed", "nothing", "row_statistics"]


class OpFunctions:
    """Functions over the torch ops of a namespace; each op is an attribute: ``rms_norm`` is ``_rms_norm``.

    Args:
        namespace: the namespace of the torch ops; their library must be loaded.

    Attributes:
        OPS: for each op, a function that returns empty tensors like its results; for a differentiable op also ``backward``,
            which takes the torch ops as its first argument, and ``setup_context``, both as in
            ``torch.library.register_autograd``; and if its last results are only for ``backward``, the number of the others.
        LATER: rarely used ops, which are looked up in ``_ops`` on use; they are not differentiable.
        HAS_SECOND_DERIVATIVES: whether the results of ``backward`` can be differentiated again; otherwise that raises
            ``RuntimeError``.
    """

    OPS: ClassVar[dict[str, tuple[Any, ...]]]
    LATER: ClassVar[tuple[str, ...]] = ()
    HAS_SECOND_DERIVATIVES: ClassVar[bool] = False

    def __init__(self, namespace: str) -> None:
        self._ops = getattr(torch.ops, namespace)
        self._library = torch.library.Library(namespace, "FRAGMENT")  # destroying it removes its registrations
        for name, (fake, *derivative) in self.OPS.items():
            # # register a kernel for the device "meta": register_fake searches every loaded module for its caller's file, in 4 ms
            self._library.impl(name, _on_one_device(f"{namespace}::{name}", fake), "Meta")
            if name in self.LATER or name.endswith("_backward"):  # a look-up takes a quarter of a millisecond
                continue
            op = getattr(self._ops, name).default
            if derivative:
                backward, setup_context, *results = derivative
                backward = functools.partial(backward, self._ops)
                twice = backward if self.HAS_SECOND_DERIVATIVES else once_differentiable(backward)
                noted = functools.partial(_setup_with_statistics, setup_context, *results) if results else setup_context
                torch.library.register_autograd(op, twice, setup_context=noted, lib=self._library)
                op = DifferentiableOp(op, backward, setup_context, twice, *results)
            setattr(self, f"_{name}", op)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


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
                        f"tensors. Fix: move one of them."
                    )
                    raise RuntimeError(msg)
        return fake(*arguments, **options)

    return checked


def nothing(*_: Any, **__: Any) -> None:
    """Return None: the op only writes."""


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
