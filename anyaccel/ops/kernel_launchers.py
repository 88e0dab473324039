"""Runs a ``DeviceKernel`` on each kind of device: compiled once, then launched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..op_builder.engine.device_code import DeviceCodeRecipe
from ..op_builder.engine.targets import OPENCL_CPU, SPIRV

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from ..op_builder.engine.device_code import DeviceCompiler
    from .kernel_source import KernelSource

__all__ = [
    "READ_ONLY",
    "TENSORS",
    "WRITTEN",
    "CudaLauncher",
    "HostSyclLauncher",
    "Launch",
    "Launcher",
    "PtxLauncher",
    "XpuLauncher",
]

WRITTEN, READ_ONLY = TENSORS = ("tensor", "const tensor")
"""The words for a pointer to a tensor's elements in ``DeviceKernel``'s ``args``."""


class Launch(NamedTuple):
    """The arguments of a kernel's launch.

    Attributes:
        grid: how many blocks.
        block: how many threads each has.
        shared_bytes: of dynamic shared memory.
        args: the type of each parameter, in a ``DeviceKernel``'s words.
        given: the values, as the caller passed them.
        values: the same as ctypes values.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    args: Sequence[str]
    given: Sequence[Any]
    values: list[Any]


class Launcher(Protocol):
    """A kernel on a device."""

    def __init__(self, kernel: KernelSource, device: torch.device) -> None: ...

    def launch(self, device: torch.device, launch: Launch) -> None:
        """Start the kernel."""


class PtxLauncher:
    """PTX, compiled by the driver."""

    def __init__(self, kernel: KernelSource, device: torch.device) -> None:
        from ..op_builder.cuda.runtime import CudaRuntimeBuilder

        self._name = kernel.name
        self._runtime = CudaRuntimeBuilder().load()
        image, symbol = self.image(kernel, device)
        self._kernel = self._runtime.kernel(kernel.name, self._runtime.load(kernel.name, image), symbol)
        self._runtime.prepare(kernel.name, self._kernel, device.index or 0)

    def image(self, kernel: KernelSource, device: torch.device) -> tuple[bytes, str]:
        """Return what the driver loads, and the kernel's symbol in it."""
        return kernel.text.encode(), kernel.name

    @staticmethod
    def recipe(kernel: KernelSource, target: str) -> DeviceCodeRecipe:
        """Return everything that decides the machine code for an architecture."""
        from ..op_builder.engine import environment
        from ..op_builder.engine.device_code import DeviceCodeRecipe
        from ..op_builder.engine.toolchains.ptxas import choose_ptxas

        return DeviceCodeRecipe(
            op="device_kernel",
            source=kernel.file(),
            include_dirs=(),
            target=target,
            compiler=choose_ptxas(environment.cuda_home(), environment.search_path()),
            options=(*kernel.options, f"-arch={target}"),
            output="kernel.cubin",
            kernels=(kernel.name,),
        )

    def launch(self, device: torch.device, launch: Launch) -> None:
        grid, block, shared_bytes, *_, values = launch
        self._runtime.launch_grid(self._name, self._kernel, device.index or 0, grid, block, shared_bytes, values)


_CONSTANTS = ("-DINFINITY=__int_as_float(0x7f800000)", "-DNAN=__int_as_float(0x7fffffff)")
"""Constants that nvcc takes from the C library, which NVRTC does not have."""


class CudaLauncher(PtxLauncher):
    """CUDA C++, compiled by NVRTC for the device, as machine code or, where only the driver knows the device, as PTX."""

    def image(self, kernel: KernelSource, device: torch.device) -> tuple[bytes, str]:
        from ..accelerator.cuda_accelerator import CUDA_Accelerator
        from ..op_builder.cuda.device_code import target_here

        capability = CUDA_Accelerator().get_device_capability(device.index)
        entry = kernel.build(self.recipe(kernel, target_here(capability)))
        return entry.binary.read_bytes(), entry.facts["symbols"][kernel.name]

    @staticmethod
    def recipe(kernel: KernelSource, target: str) -> DeviceCodeRecipe:
        """Return everything that decides the machine code or PTX for an architecture."""
        from ..op_builder.engine.toolchains.nvrtc import choose_nvrtc

        return DeviceCodeRecipe(
            op="device_kernel",
            source=kernel.file(),
            include_dirs=kernel.include_dirs,
            target=target,
            compiler=choose_nvrtc(),
            options=("-std=c++20", *_CONSTANTS, *kernel.options, f"-arch={target}"),
            output=f"kernel.{'cubin' if target.startswith('sm_') else 'ptx'}",
            kernels=(kernel.name,),
        )


class HostSyclLauncher:
    """SYCL for CPU tensors, by Intel's OpenCL."""

    def __init__(self, kernel: KernelSource, device: torch.device) -> None:
        from ..op_builder.xpu.device_code import host_runtime

        self._name = kernel.name
        self._runtime = host_runtime()
        entry = kernel.build(_sycl_recipe(kernel, OPENCL_CPU, self._runtime.compiler()))
        symbols = {kernel.name: kernel.name}
        self._kernel = self._runtime.kernels(kernel.name, entry.binary.read_bytes(), symbols)[kernel.name]

    def launch(self, device: torch.device, launch: Launch) -> None:
        self._runtime.launch_grid(self._name, self._kernel, 0, launch.grid[0], launch.block[0], launch.values)


class XpuLauncher:
    """SYCL for XPU tensors, on torch's current queue."""

    def __init__(self, kernel: KernelSource, device: torch.device) -> None:
        from ..op_builder.xpu.device_code import host_runtime
        from ..op_builder.xpu.runtime import XpuRuntime, XpuRuntimeBuilder

        self._name = kernel.name
        self._runtime = XpuRuntime(XpuRuntimeBuilder().load())
        entry = kernel.build(_sycl_recipe(kernel, SPIRV, host_runtime().spirv_compiler()))
        symbols = {kernel.name: kernel.name}
        self._kernel = self._runtime.kernels(kernel.name, entry.binary.read_bytes(), symbols)[kernel.name]
        self._runtime.prepare(kernel.name, self._kernel, kernel.name, device.index or 0)

    def launch(self, device: torch.device, launch: Launch) -> None:
        index, groups, threads = device.index or 0, launch.grid[0], launch.block[0]
        self._runtime.launch_grid(self._name, self._kernel, index, groups, threads, launch.values)


def _sycl_recipe(kernel: KernelSource, target: str, compiler: DeviceCompiler) -> DeviceCodeRecipe:
    from ..op_builder.xpu.runtime import OPTIONS

    return DeviceCodeRecipe(
        op="device_kernel",
        source=kernel.file(),
        include_dirs=kernel.include_dirs,
        target=target,
        compiler=compiler,
        options=(*OPTIONS, *kernel.options),
        output="kernel.bin",
    )
