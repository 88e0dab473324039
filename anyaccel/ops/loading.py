"""Loads the kernels behind functions, layers and optimizers once per process, where ``torch.compile`` can guard on them."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..op_builder.all_ops import builder_class
from ..op_builder.kernel_loader import loader_class
from ..op_builder.table import OPS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

__all__ = ["declare", "load_on_host", "loaded"]


class _Held:
    """Kernels loaded on first use; a trace guards on the attribute, and does not trace the loader's code."""

    load: Callable[[], Any]
    value: Any = None


_held: dict[Hashable, _Held] = {}


def declare(key: Hashable, load: Callable[[], Any]) -> None:
    """Register how a key is loaded; call it at import time, because a trace does not see its own additions to a dictionary.

    Args:
        key: its name, or a tuple of names.
        load: returns it, and never None.
    """
    _held[key] = _Held()
    _held[key].load = load


def loaded(key: Hashable) -> Any:
    """Return the implementation that a loader chooses, or an op's functions, loaded once per process.

    Args:
        key: a loader's name, such as ``"RMSNormLoader"``, ``"cpu_adam"``, or another declared key.

    Raises:
        NoKernelError: when no implementation is available here, with the reason for each.
        OpError: when the op cannot be built or loaded.
    """
    if torch.compiler.is_compiling():
        _load(key)  # before the trace reads the attribute
    held = _held[key]
    if held.value is None:
        _load(key)
    return held.value


def _load(key: Hashable) -> bool:
    held = _held[key]
    if held.value is None:
        with _unseen():
            held.value = held.load()
    return True


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """Hide calls of torch ops from what records them: they would be part of an exported program, or of a trace."""
    jit: Any = torch._C
    tracing = jit._get_tracing_state()
    jit._set_tracing_state(None)
    try:
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            yield
    finally:
        jit._set_tracing_state(tracing)


_load._dynamo_marked_constant = True  # type: ignore[attr-defined]  # like torch.compiler.assume_constant_result


def load_on_host(builder: str) -> Any:
    """Return the functions of an op's host library, which work on CPU tensors.

    Args:
        builder: the builder's name.
    """
    found = builder_class(builder, "cpu")
    assert found is not None  # noqa: S101  # every op of the table has a host library
    return found().load()


def _chosen_by(loader: str) -> Any:
    return loader_class(loader)().functions()


declare("cpu_adam", partial(load_on_host, "CPUAdamBuilder"))
for _name in [name for op in OPS for name in op.loaders]:  # like `declare`, but faster to import
    _held[_name] = _Held()
    _held[_name].load = partial(_chosen_by, _name)
