"""``torch.mps`` with the function names of other devices: its memory functions have different names, and it has one device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .mps_streams import stream_members

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["MpsModule"]


_OF_THE_ONE_DEVICE = (
    "current_stream",
    "default_stream",
    "synchronize",
)  # they take no device; torch 2.15 has the streams


class MpsModule:
    """A device module as ``TorchAccelerator`` calls it; missing attributes come from ``torch.mps``. There is one device.

    Args:
        module: ``torch.mps``.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        vars(self).update(stream_members(module))

    def __getattr__(self, name: str) -> Any:
        if name == "_module":  # while the object is being copied
            raise AttributeError(name)
        own = getattr(self._module, name)
        return (lambda _device=None: own()) if name in _OF_THE_ONE_DEVICE else own

    def current_device(self) -> int:
        """Return the index of the one device."""
        return 0

    def set_device(self, device: Any) -> None:
        """Do nothing for the one device.

        Raises:
            ValueError: when another one is named.
        """
        if f"{device}" not in ("0", "mps", "mps:0"):
            msg = (
                f"choosing the device failed: got {device}; expected 0, 'mps' or 'mps:0', as there is one device. "
                f"Fix: pass one of these, or call no set_device()."
            )
            raise ValueError(msg)

    def is_bf16_supported(self) -> bool:
        """Return whether this is macOS 14 or newer, which Metal's bfloat16 needs."""
        import torch

        return bool(torch.backends.mps.is_macos_or_newer(14, 0))

    def is_fp64_supported(self) -> bool:
        """Return False: Metal has no float64."""
        return False

    def memory_allocated(self, device: Any = None) -> int:
        """Return the bytes occupied by tensors."""
        return int(self._module.current_allocated_memory())

    def memory_reserved(self, device: Any = None) -> int:
        """Return the bytes that Metal has allocated to this process."""
        return int(self._module.driver_allocated_memory())

    def max_memory_allocated(self, device: Any = None) -> int:
        """Return the bytes that Metal has allocated to this process, at least what tensors have occupied since a release."""
        return self.memory_reserved()

    def max_memory_reserved(self, device: Any = None) -> int:
        """Return the bytes that Metal has allocated to this process: Metal keeps no peak."""
        return self.memory_reserved()

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Do nothing: Metal keeps no peak."""

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Return the free and the total memory, in bytes, relative to Metal's recommended limit."""
        total = int(self._module.recommended_max_memory())
        return max(0, total - self.memory_reserved()), total

    def get_device_properties(self, device: Any = None) -> SimpleNamespace:
        """Return the device's name, its memory and, if torch reports them, its cores."""
        own = {"name": getattr(self._module, "get_name", lambda: "Apple GPU")()}
        cores = getattr(self._module, "get_core_count", None)
        if cores is not None:
            own["multi_processor_count"] = cores()
        return SimpleNamespace(**own, total_memory=int(self._module.recommended_max_memory()))

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """Limit this process to a fraction of the recommended memory."""
        self._module.set_per_process_memory_fraction(fraction)

    def get_rng_state(self, device: Any = None) -> Any:
        """Return the generator's state."""
        return self._module.get_rng_state()

    def set_rng_state(self, new_state: Any, device: Any = None) -> None:
        """Set the generator's state."""
        self._module.set_rng_state(new_state)
