"""NVIDIA GPUs, and AMD GPUs under ROCm, which also use ``torch.cuda``."""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import Any

from . import environment
from .detection import is_importable
from .errors import UnsupportedError
from .torch_accelerator import TorchAccelerator, calls

__all__ = ["CUDA_Accelerator"]


class CUDA_Accelerator(TorchAccelerator):
    """The CUDA (or ROCm) devices of this machine."""

    supports_nvtx_domain = True

    def __init__(self) -> None:
        super().__init__("cuda")

    def _communication_backend(self) -> str | None:
        backend = super()._communication_backend()
        is_lacking = backend == "nccl" and sys.platform == "win32"  # torch's builds for Windows have no NCCL
        return "gloo" if is_lacking else backend

    @calls("nccl")
    def communication_backend_version(self) -> Any:
        if not self._has_nccl():
            member = "communication_backend_version"
            raise UnsupportedError(member, self._name, "NCCL in this torch")
        return self._module.nccl.version()

    def _has_nccl(self) -> bool:
        import torch

        return hasattr(torch._C, "_nccl_version")  # torch.cuda.nccl is there without it

    # Data types. Without a device, the answer is that of a current GPU, so that code can be prepared on another machine.

    def is_bf16_supported(self) -> bool:
        return bool(self._module.is_bf16_supported()) if self.is_available() else True

    def is_fp16_supported(self) -> bool:
        if not self.is_available():
            return True
        oldest = 6 if environment.allows_deprecated_fp16() else 7
        return bool(self.get_device_capability()[0] >= oldest)

    def is_triton_supported(self) -> bool:
        return bool(self.is_available() and self.get_device_capability()[0] >= 8)

    def prefer_triton_grouped_mm(self) -> bool:
        """Return True on sm_7x and sm_8x, where ``torch._grouped_mm`` loops over groups, if Triton is installed."""
        import torch

        if torch.version.hip is not None or not self.is_available() or importlib.util.find_spec("triton") is None:
            return False
        return not hasattr(torch, "_grouped_mm") or 7 <= self.get_device_capability()[0] < 9

    # torch reads the utilization with another package, which nothing installs for it.

    def supports(self, member: str) -> bool:
        is_there = super().supports(member)
        if member == "utilization":
            return is_there and self._has_management_package()
        return is_there and (member != "communication_backend_version" or self._has_nccl())

    @calls("utilization")
    def utilization(self, device_index: int | None = None) -> int:
        try:
            return super().utilization(device_index)
        except ModuleNotFoundError as error:
            member = "utilization"
            package = "amdsmi" if self._is_rocm() else "nvidia-ml-py"
            raise UnsupportedError(member, self._name, f"utilization figure without the package {package}") from error

    def _is_rocm(self) -> bool:
        import torch

        return torch.version.hip is not None

    def _has_management_package(self) -> bool:
        return is_importable("amdsmi" if self._is_rocm() else "pynvml")

    # Ranges go to NVTX; a domain needs the package nvtx, and is ignored without it.

    @calls("nvtx")
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> Any:
        handle = self._nvtx_domain(domain)
        if handle is None:
            return self._module.nvtx.range_push(msg)
        return handle.push_range(message=msg, category=category)

    @calls("nvtx")
    def range_pop(self, domain: str | None = None) -> Any:
        handle = self._nvtx_domain(domain)
        return self._module.nvtx.range_pop() if handle is None else handle.pop_range()

    def _nvtx_domain(self, domain: str | None) -> Any:
        return None if domain is None else _domain_of_nvtx(domain)

    # Host memory

    @calls("cudart", "check_error")
    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        self._module.check_error(int(self._module.cudart().cudaHostRegister(address, num_bytes, 0)))
        return True

    @calls("cudart", "check_error")
    def unregister_host_memory(self, address: int) -> None:
        self._module.check_error(int(self._module.cudart().cudaHostUnregister(address)))

    # Launching

    def export_envs(self) -> list[str]:
        return ["NCCL"]


@functools.cache  # looking for the package takes 50 times as long as a range
def _domain_of_nvtx(name: str) -> Any:
    """Return the domain of the package nvtx; None without that package."""
    if importlib.util.find_spec("nvtx") is None:
        return None
    import nvtx

    return nvtx.get_domain(name)
