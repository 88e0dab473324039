"""What the functions, layers and optimizers here call, loaded once per process, where ``torch.compile`` sees it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..op_builder.all_ops import builder_class
from ..op_builder.kernel_loader import loader_class
from ..op_builder.table import OPS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["declare", "load_on_host", "loaded"]


class _Held:
    """What is loaded when it is first asked for; a trace guards on the attribute, and reads no loader's code."""

    load: Callable[[], Any]
    value: Any = None


_held: dict[Hashable, _Held] = {}


def declare(key: Hashable, load: Callable[[], Any]) -> None:
    """Say how something is loaded, when a module is imported: what a trace adds to a dictionary, it does not see.

    Args:
        key: its name, or a tuple of names.
        load: returns it, and never None.
    """
    _held[key] = _Held()
    _held[key].load = load


def loaded(key: Hashable) -> Any:
    """Return what a loader chooses, or an op's functions, once per process.

    Args:
        key: a loader's name, such as ``"RMSNormLoader"``, ``"cpu_adam"``, or what else has been declared.

    Raises:
        NoKernelError: when no implementation serves here, saying of each why not.
        OpError: when the op cannot be built or loaded.
    """
    if torch.compiler.is_compiling():
        _load(key)  # before the trace reads what is held
    held = _held[key]
    if held.value is None:
        _load(key)
    return held.value


def _load(key: Hashable) -> bool:
    held = _held[key]
    if held.value is None:
        held.value = held.load()
    return True


_load._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as torch.compiler.assume_constant_result does


def load_on_host(builder: str) -> Any:
    """Return the functions of an op's host library, which serve CPU tensors.

    Args:
        builder: the builder's name.
    """
    found = builder_class(builder, "cpu")
    assert found is not None  # noqa: S101  # every op of the table has a host library
    return found().load()


def _chosen_by(loader: str) -> Any:
    return loader_class(loader)().functions()


declare("cpu_adam", partial(load_on_host, "CPUAdamBuilder"))
for _name in [name for op in OPS for name in op.loaders]:  # as `declare` does, for the import of every program
    _held[_name] = _Held()
    _held[_name].load = partial(_chosen_by, _name)
