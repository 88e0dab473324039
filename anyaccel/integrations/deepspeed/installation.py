"""Changes two of deepspeed's modules, each right after its own code has run."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from ...accelerator import DeepSpeedAccelerator, get_accelerator, set_accelerator
from .builders import every_builder_name, find_builder
from .import_hook import after_import

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["install"]

_ACCELERATOR = "deepspeed.accelerator.real_accelerator"
_PINNING = (
    "pin_memory", "pin_empty", "pin_empty_like", "is_pinned", "unpin_memory",
    "_pin_fresh", "_shape_numel", "_require_host_device",
)  # fmt: skip

_logger = logging.getLogger(__name__)
_is_installed = False


def install() -> None:
    """Make deepspeed use :func:`anyaccel.get_accelerator` and our op builders; further calls change nothing.

    If deepspeed has already been imported, its modules have bound builders. Then the accelerator is set, which has our builders,
    and a warning says that those stay deepspeed's.
    """
    global _is_installed
    if _is_installed:
        return
    bound = sys.modules.get(_ACCELERATOR)
    if bound is None:
        after_import({_ACCELERATOR: _take_over, "deepspeed.ops.op_builder.all_ops": _list_every_op})
        _is_installed = True
        return
    _join(bound)
    bound.set_accelerator(get_accelerator())
    _serve_builders()
    _is_installed = True  # the next call tries again if no accelerator could be chosen
    _logger.warning(
        "deepspeed was imported before anyaccel.integrations.deepspeed: its accelerator is now '%s' of anyaccel, with its "
        "builders, but deepspeed's optimizers keep the op builders that they bound when they were imported. "
        "Fix: import anyaccel.integrations.deepspeed before deepspeed.",
        get_accelerator()._name,
    )


def _take_over(real_accelerator: ModuleType) -> None:
    """Replace deepspeed's selection with ours, before its other modules import the names."""
    _join(real_accelerator)
    changed: Any = real_accelerator
    changed.get_accelerator, changed.set_accelerator = get_accelerator, set_accelerator
    _serve_builders()


def _serve_builders() -> None:
    from ...op_builder import add_finder

    add_finder(find_builder)


def _join(real_accelerator: ModuleType) -> None:
    """Register our class as a subclass of deepspeed's, and pin memory with deepspeed's accounting and native locks."""
    theirs = real_accelerator.dsa2
    theirs.register(DeepSpeedAccelerator)
    for name in _PINNING:
        if name in vars(theirs):  # older versions lack some
            setattr(DeepSpeedAccelerator, name, vars(theirs)[name])


def _list_every_op(all_ops: ModuleType) -> None:
    """Complete the table of ``ds_report``, which deepspeed fills with the builders in one folder."""
    accelerator = get_accelerator()
    listed = all_ops.__dict__
    for name in every_builder_name(accelerator._name):
        builder = accelerator.create_op_builder(name)
        if builder is not None and builder.NAME not in listed["ALL_OPS"]:
            listed["ALL_OPS"][builder.NAME] = builder
            listed["__op_builders__"].append(builder)
