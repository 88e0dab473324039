"""Derivatives and result shapes of torch ops that are implemented in C++."""

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
    """Functions over the torch ops of a namespace, each of which is an attribute: ``rms_norm`` is ``_rms_norm``.

    Args:
        namespace: of the torch ops, whose library is loaded.

    Attributes:
        OPS: for each op what returns empty tensors like its results, and where it has a derivative ``backward``, called with
            the torch ops first, and ``setup_context``, both as of ``torch.library.register_autograd``; then, where some of its
            results are for ``backward`` alone, how many are not, which come first.
        LATER: the ops that few programs call, which are looked up in ``_ops`` when they are; they have no derivative.
        HAS_SECOND_DERIVATIVES: whether what ``backward`` computes can be differentiated once more; otherwise that raises
            ``RuntimeError``.
    """

    OPS: ClassVar[dict[str, tuple[Any, ...]]]
    LATER: ClassVar[tuple[str, ...]] = ()
    HAS_SECOND_DERIVATIVES: ClassVar[bool] = False

    def __init__(self, namespace: str) -> None:
        self._ops = getattr(torch.ops, namespace)
        self._library = torch.library.Library(namespace, "FRAGMENT")  # what it registers ends with it
        for name, (fake, *derivative) in self.OPS.items():
            # as a kernel of the device "meta": register_fake searches every loaded module for its caller's file, for 4 ms
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
    """Return a fake that refuses tensors of several devices: the kernels of real devices do."""
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
                        f"{op} failed: got {described.name} on {tensor.device}; expected {first.device}, where the others "
                        f"are. Fix: move one of them."
                    )
                    raise RuntimeError(msg)
        return fake(*arguments, **options)

    return checked


def nothing(*_: Any, **__: Any) -> None:
    """Return nothing, as an op does that only writes."""


def empty_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Return an uninitialised tensor of the same shape and dtype, contiguous."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def row_statistics(x: torch.Tensor) -> torch.Tensor:
    """Return an uninitialised number for each row, of the dtype that kernels compute in."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x.new_empty(math.prod(x.shape[:-1]), dtype=dtype)  # Size.numel() would fix a traced size


def mark_changed(tensors: Sequence[torch.Tensor]) -> None:
    """Tell autograd of an op's writing, so that a graph which still needs the old values refuses to run backward."""
    if not torch.compiler.is_compiling():  # there the op's schema says it
        torch.autograd.graph.increment_version(tensors)
