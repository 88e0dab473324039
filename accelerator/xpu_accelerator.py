"""Intel GPUs through ``torch.xpu``, and through IPEX only if it is installed with torch 2.8 or older."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from .communication import is_oneccl_importable
from .detection import import_ipex, is_importable
from .errors import UnsupportedError
from .torch_accelerator import TorchAccelerator, calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["XPU_Accelerator"]


class XPU_Accelerator(TorchAccelerator):
    """The Intel GPUs of this machine."""

    def __init__(self) -> None:
        super().__init__("xpu")

    def _load_module(self, name: str) -> Any:
        import_ipex()
        return super()._load_module(name)

    @calls("current_stream")
    def default_stream(self, device_index: int | None = None) -> Any:
        """Return the current stream: SYCL has no default stream with which others synchronise."""
        return self.current_stream(device_index)

    def communication_backend_name(self) -> str:
        import torch.distributed

        has_xccl = getattr(torch.distributed, "is_xccl_available", lambda: False)()
        return "ccl" if not has_xccl and is_oneccl_importable() else "xccl"

    def is_triton_supported(self) -> bool:
        return self.is_available() and importlib.util.find_spec("triton") is not None

    # Data types. Without a device, the answer is that of a current GPU, as for CUDA.

    def is_bf16_supported(self) -> bool:
        return super().is_bf16_supported() if self.is_available() else True

    def is_fp64_supported(self) -> bool:
        """Return what the current device says: some of Intel's GPUs have no float64."""
        return bool(self.get_device_properties().has_fp64) if self.is_available() else True

    # torch reads the utilization with another package, which nothing installs for it, and which may need privileges.

    def supports(self, member: str) -> bool:
        return super().supports(member) and (member != "utilization" or is_importable("pyzes"))

    @calls("utilization")
    def utilization(self, device_index: int | None = None) -> int:
        try:
            return super().utilization(device_index)
        except ImportError as error:
            member = "utilization"
            raise UnsupportedError(member, self._name, "utilization figure without the package pyzes") from error

    # Ranges go to ITT (VTune) if torch was built with it, else to torch.profiler.

    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> Any:
        import torch

        if torch.profiler.itt.is_available():
            return torch.profiler.itt.range_push(msg)
        return super().range_push(msg)

    def range_pop(self, domain: str | None = None) -> Any:
        import torch

        return torch.profiler.itt.range_pop() if torch.profiler.itt.is_available() else super().range_pop()

    # ``new_empty(pin_memory=True)`` may ask CUDA's allocator.

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return self._torch_pin_memory(tensor.new_empty(shape))

    def visible_devices_envs(self) -> list[str]:
        return ["ZE_AFFINITY_MASK"]
