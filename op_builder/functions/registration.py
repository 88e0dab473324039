"""Derivatives and result shapes of torch ops that are implemented in C++."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["empty_contiguous", "mark_changed", "ops_of", "register", "row_statistics"]

_registered: dict[str, torch.library.Library] = {}


def register(
    name: str, fake: Callable[..., Any], derivative: tuple[Callable[..., Any], Callable[..., Any]] | None
) -> None:
    """Tell torch an op's results and its derivative, once a process.

    Args:
        name: such as ``"anyaccel::rms_norm"``.
        fake: returns empty tensors like the op's results.
        derivative: ``backward`` and ``setup_context`` of ``torch.library.register_autograd``; None when it has none.
    """
    if name in _registered:
        return
    library = torch.library.Library(name.split("::", maxsplit=1)[0], "FRAGMENT")
    # as a kernel of the device "meta": register_fake searches every loaded module for its caller's file, which takes 4 ms
    library.impl(name.split("::")[1], _on_one_device(name, fake), "Meta")
    if derivative is not None:
        backward, setup_context = derivative
        torch.library.register_autograd(name, backward, setup_context=setup_context, lib=library)
    _registered[name] = library


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


def ops_of(namespace: str) -> Any:
    """Return the torch ops of a namespace."""
    return getattr(torch.ops, namespace)


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
