"""The CPU as an accelerator: synchronous, one device, with the memory of this process."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from . import environment, host
from .communication import is_oneccl_importable, require_backend
from .generic_module import GenericModule
from .host_streams import Event, HostStreams, Stream
from .torch_accelerator import TorchAccelerator

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["CPU_Accelerator"]

_TORCH_TYPES = {
    "torch.bfloat16": "BFloat16Tensor",
    "torch.bool": "BoolTensor",
    "torch.float16": "HalfTensor",
    "torch.float32": "FloatTensor",
    "torch.float64": "DoubleTensor",
    "torch.int8": "CharTensor",
    "torch.int16": "ShortTensor",
    "torch.int32": "IntTensor",
    "torch.int64": "LongTensor",
    "torch.uint8": "ByteTensor",
}


class CPU_Accelerator(HostStreams, TorchAccelerator):
    """The CPU.

    Every rank on the host is one CPU device. Their number is the launcher's ``LOCAL_WORLD_SIZE``, or without a launcher the
    number of NUMA nodes. The current device is ``LOCAL_RANK`` until ``set_device``. Both are read when the instance is made.
    """

    Stream = Stream
    Event = Event

    def __init__(self) -> None:
        super().__init__("cpu")
        self._device_count = environment.local_world_size() or host.numa_node_count()
        self._current_device = environment.local_rank()

    def _load_module(self, name: str) -> Any:
        import torch

        seeds = {
            "initial_seed": torch.initial_seed,
            "manual_seed": torch.manual_seed,
            "manual_seed_all": torch.manual_seed,
        }
        return GenericModule(torch.cpu, seeds)

    def is_synchronized_device(self) -> bool:
        return True

    # Devices: they share one name, and an index is bookkeeping.

    def device_name(self, device_index: int | str | torch.device | None = None) -> str:
        text = "" if device_index is None else f"{device_index}"
        is_other = text[:1].isalpha() and not text.startswith(("cpu", "cuda"))  # anyaccel: ignore[device-name]
        return text if is_other else "cpu"

    def set_device(self, device_index: int | str | torch.device) -> None:
        """Record the index. Like ``torch.cuda.set_device``, it also takes a device; ``"cpu"`` and -1 change nothing."""
        import torch

        if isinstance(device_index, str | torch.device):
            index = torch.device(device_index).index  # anyaccel: ignore[device-name]
            device_index = self._current_device if index is None else index
        index = operator.index(device_index)
        if index >= 0:
            self._current_device = index

    def current_device(self) -> int:
        return self._current_device

    def device_count(self) -> int:
        return self._device_count

    def current_device_name(self) -> str:
        return "cpu"

    def synchronize(self, device_index: int | None = None) -> None:
        return None

    # Random numbers: one generator, whatever the index.

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        import torch

        torch.set_rng_state(new_state)

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        import torch

        return torch.get_rng_state()

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [self.get_rng_state()]

    def default_generator(self, device_index: int) -> torch.Generator:
        import torch

        return torch.default_generator

    # Memory: this process's resident set; torch's CPU allocator caches nothing.

    def empty_cache(self) -> None:
        return None

    def memory_allocated(self, device_index: int | None = None) -> int:
        return host.resident_bytes()

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return host.peak_resident_bytes()

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        current, peak = host.resident_bytes(), host.peak_resident_bytes()
        return {
            "allocated_bytes.all.current": current,
            "allocated_bytes.all.peak": max(current, peak),
            "reserved_bytes.all.current": current,
            "reserved_bytes.all.peak": max(current, peak),
        }

    def reset_max_memory_allocated(self, device_index: int | None = None) -> None:
        host.reset_peak_resident()

    reset_max_memory_cached = reset_max_memory_allocated
    reset_peak_memory_stats = reset_max_memory_allocated
    memory_cached = memory_allocated
    memory_reserved = memory_allocated
    max_memory_cached = max_memory_allocated
    max_memory_reserved = max_memory_allocated

    def total_memory(self, device_index: int | None = None) -> int:
        return host.total_memory_bytes()

    def available_memory(self, device_index: int | None = None) -> int:
        return host.available_memory_bytes()

    def mem_get_info(self, device_index: int | None = None) -> tuple[int, int]:
        return host.available_memory_bytes(), host.total_memory_bytes()

    def get_device_properties(self, device_index: int | None = None) -> host.Processor:
        return host.processor()

    def reset_accumulated_memory_stats(self, device_index: int | None = None) -> None:
        """Do nothing: the CPU has no accumulated counters."""

    def get_rss(self) -> int:
        """Return this process's resident set in bytes, as deepspeed's CPU class does."""
        return host.resident_bytes()

    def reset_rss(self) -> int:
        """Start a new measurement of the peak. Returns the resident set in bytes."""
        host.reset_peak_resident()
        return host.resident_bytes()

    def utilization(self, device_index: int | None = None) -> int:
        """Return the percentage of all cores' time in use, measured for a tenth of a second."""
        return host.utilization_percent()

    def can_device_access_peer(self, device_index: int, peer_index: int) -> bool:
        return True

    def get_arch_list(self) -> list[str]:
        """Return the instruction set that torch's kernels use on this machine, such as ``AVX512``."""
        import torch

        return [torch.backends.cpu.get_cpu_capability()]

    # Data types

    def is_fp16_supported(self) -> bool:
        import torch

        asked = getattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", None)
        return False if asked is None else bool(asked())

    def communication_backend_name(self) -> str:
        chosen = environment.cpu_backend()
        if chosen is not None:
            return require_backend(chosen, "ANYACCEL_CPU_BACKEND")
        return "ccl" if is_oneccl_importable() else "gloo"

    # Pinning: the device reads ordinary host memory, so a "pinned" tensor is an ordinary one.

    _torch_pins_host_memory = False

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return tensor.new_empty(shape)

    def _torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return False

    def tensor_type(self, dtype: torch.dtype) -> Any:
        """Return torch's own type, such as ``torch.FloatTensor``, if there is one for the dtype."""
        import torch

        own_type = getattr(torch, _TORCH_TYPES.get(str(dtype), ""), None)
        return super().tensor_type(dtype) if own_type is None else own_type
