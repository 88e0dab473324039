"""A device module completed with ``torch.accelerator``: functions that ``torch.<name>`` lacks and torch has for all devices."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import ModuleType

    import torch

__all__ = ["GenericModule", "completed"]

_OF_DEVICES = {
    "current_device": "current_device_index",
    "set_device": "set_device_index",
    "current_stream": "current_stream",
    "set_stream": "set_stream",
}
_OF_ALLOCATORS = (
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "synchronize",
)
"""What a device has whose allocator is a ``c10::DeviceAllocator``. That class must implement ``recordStream``."""


class GenericModule:
    """A device's module as ``TorchAccelerator`` calls it.

    Args:
        module: ``torch.<name>``.
        functions: the functions that replace missing or different ones, by the names that device modules use.
    """

    def __init__(self, module: ModuleType, functions: dict[str, Any]) -> None:
        self._module = module
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        if name == "_module":  # while the object is being copied
            raise AttributeError(name)
        return getattr(self._module, name)


def completed(module: ModuleType, name: str) -> Any:
    """Return a device module with missing functions taken from ``torch.accelerator``, if that is for this device.

    Finding out must not initialise the device. ``device_count`` and ``is_available`` of ``torch.accelerator`` would ask the
    module itself. ``synchronize``, ``torch.Stream`` and ``torch.Event`` are taken where the allocator knows streams.
    ``get_memory_info`` and ``Graph`` raise on devices that do not implement them, and there is no way to know in advance.

    Args:
        module: ``torch.<name>``.
        name: the device's type.
    """
    import torch

    generic: Any = getattr(torch, "accelerator", None)  # from torch 2.6 on
    current = generic.current_accelerator() if generic else None
    if current is None or current.type != name:
        return module
    offered, lacking = dict(_OF_DEVICES), {}
    try:
        generic.memory_stats()  # {} before the first allocation; raises if the allocator keeps no statistics
    except (AttributeError, RuntimeError):
        pass
    else:
        offered.update((function, function) for function in _OF_ALLOCATORS)
        lacking = {"Stream": torch.Stream, "Event": torch.Event, "stream": _entered}
    lacking.update((own, getattr(generic, function)) for own, function in offered.items() if hasattr(generic, function))
    lacking = {own: function for own, function in lacking.items() if not hasattr(module, own)}
    return GenericModule(module, lacking) if lacking else module


def _entered(stream: torch.Stream | None) -> AbstractContextManager[Any]:
    """Make a stream and its device current in a ``with`` block; None changes nothing."""
    return contextlib.nullcontext() if stream is None else stream
