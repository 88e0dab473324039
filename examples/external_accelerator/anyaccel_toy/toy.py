"""The module that becomes ``torch.toy``. Its members have the meaning of those in ``torch.cuda``."""

from __future__ import annotations

import contextlib
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch
from torch.utils.backend_registration import _DummyBackendModule

from anyaccel.accelerator import host_streams

if TYPE_CHECKING:
    from collections.abc import Iterator

    Device = torch.device | str | int | None

__all__ = ["Toy"]


class Toy(_DummyBackendModule):
    """Two devices of 1 GiB; work is finished when the call that started it returns."""

    total_bytes = 1 << 30
    _initialized = True  # torch.utils.checkpoint keeps a device's random state only if its module has this

    Event = host_streams.Event
    Stream = host_streams.Stream
    stream = host_streams.StreamContext
    set_stream = staticmethod(host_streams.set_stream)

    def __init__(self) -> None:
        self.current = 0
        self.default_generators = (torch.Generator(), torch.Generator())
        self.allocated_bytes = [0, 0]
        self.peak_bytes = [0, 0]
        self.registrations: tuple[torch.library.Library, ...] = ()

    def index(self, device: Device = None) -> int:
        """Return the index that a device names, or the current device's if it names none."""
        index = device if device is None or isinstance(device, int) else torch.device(device).index
        if index not in (None, 0, 1):
            msg = f"finding the toy device failed: got index {index}; expected 0 or 1. Fix: correct the index."
            raise ValueError(msg)
        return self.current if index is None else index

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return self.current

    def set_device(self, device: Device) -> None:
        self.current = self.index(device)

    @contextlib.contextmanager
    def device(self, device: Device) -> Iterator[None]:
        previous = self.current
        self.set_device(device)
        try:
            yield
        finally:
            self.current = previous

    def synchronize(self, device: Device = None) -> None:
        """Return at once: no work is pending, no memory is cached, and importing the package has started the devices."""

    init = empty_cache = synchronize

    def current_stream(self, device: Device = None) -> host_streams.Stream:
        return host_streams.current_stream()

    def default_stream(self, device: Device = None) -> host_streams.Stream:
        return host_streams.default_stream()

    def get_device_properties(self, device: Device = None) -> SimpleNamespace:
        return SimpleNamespace(name=f"Toy device {self.index(device)}", total_memory=self.total_bytes)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    # Random numbers

    def manual_seed(self, seed: int) -> None:
        self.default_generators[self.current].manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        for generator in self.default_generators:
            generator.manual_seed(seed)

    def initial_seed(self) -> int:
        return self.default_generators[self.current].initial_seed()

    def get_rng_state(self, device: Device = None) -> torch.Tensor:
        return self.default_generators[self.index(device)].get_state()

    def set_rng_state(self, new_state: torch.Tensor, device: Device = None) -> None:
        self.default_generators[self.index(device)].set_state(new_state)

    # Memory: the host storages used by a device's tensors, each counted once, from its first use to its release.

    def count(self, storage: torch.UntypedStorage, index: int) -> None:
        """Count a host storage, or its growth since it was last counted, as memory of a device."""
        grown_bytes = storage.nbytes() - getattr(storage, "toy_bytes", 0)
        if grown_bytes:
            storage.toy_bytes = storage.nbytes()  # type: ignore[attr-defined]
            self._add(index, grown_bytes)
            weakref.finalize(storage, self._add, index, -grown_bytes)

    def _add(self, index: int, size_bytes: int) -> None:
        self.allocated_bytes[index] += size_bytes
        self.peak_bytes[index] = max(self.peak_bytes[index], self.allocated_bytes[index])

    def memory_allocated(self, device: Device = None) -> int:
        return self.allocated_bytes[self.index(device)]

    def max_memory_allocated(self, device: Device = None) -> int:
        return self.peak_bytes[self.index(device)]

    memory_reserved, max_memory_reserved = memory_allocated, max_memory_allocated

    def reset_peak_memory_stats(self, device: Device = None) -> None:
        self.peak_bytes[self.index(device)] = self.memory_allocated(device)

    def memory_stats(self, device: Device = None) -> dict[str, int]:
        current, peak = self.memory_allocated(device), self.max_memory_allocated(device)
        return {"allocated_bytes.all.current": current, "allocated_bytes.all.peak": peak}

    def mem_get_info(self, device: Device = None) -> tuple[int, int]:
        return max(0, self.total_bytes - self.memory_allocated(device)), self.total_bytes
