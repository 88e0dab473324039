"""What the functions and optimizers here call, loaded once a process, where ``torch.compile`` sees it."""

from __future__ import annotations

from typing import Any

import torch

from ..op_builder import kernel_loader, load_op

__all__ = ["Held", "loaded"]


class Held:
    """What is loaded when it is first asked for; a trace guards on the attribute, and reads no loader's code."""

    value: Any = None


def loaded(name: str) -> Any:
    """Return what a loader chooses, or an op's functions, once a process.

    Args:
        name: a loader's name, such as ``"RMSNormLoader"``, or an op's, such as ``"cpu_adam"``.

    Raises:
        NoKernelError: when no implementation serves here, saying of each why not.
        OpError: when the op cannot be built or loaded.
    """
    if torch.compiler.is_compiling():
        _load(name)  # before the trace reads what is held
    held = _held[name]
    if held.value is None:
        _load(name)
    return held.value


def _load(name: str) -> bool:
    held = _held[name]
    if held.value is None:
        held.value = getattr(kernel_loader, name)().load() if name.endswith("Loader") else load_op(name)
    return True


_load._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as torch.compiler.assume_constant_result does

_held = {name: Held() for name in ("cpu_adam", *(name for name in dir(kernel_loader) if name.endswith("Loader")))}
"""An entry for each name from the beginning: what a trace adds to a dictionary, it does not see."""
