"""SYCL devices for this project's ops: Intel GPUs, and the CPU through Intel's OpenCL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..device_kernels import register_kernels
from ..engine import environment, prebuilt
from ..engine.build import ensure_built
from ..engine.cache import open_cache
from ..engine.errors import OpLoadError
from ..engine.targets import SPIRV
from ..engine.toolchains.sycl import choose_dpcpp
from ..engine.trace import Trace
from .device_code import device_code_recipe, host_runtime, spirv_key, spirv_recipe
from .runtime import SyclRuntimeBuilder, XpuRuntime, XpuRuntimeBuilder

if TYPE_CHECKING:
    from ..engine.entry import Entry
    from ..op import Op

__all__ = ["SyclOnHost", "XpuDevice", "spirv"]


class XpuDevice:
    """Intel's GPUs."""

    kind = "xpu"
    namespace = "anyaccel"

    def require(self, op: str) -> None:
        from ...accelerator.detection import rejection

        if rejection(self.kind):
            msg = (
                f"loading the op '{op}' failed: torch finds no usable XPU. "
                f"Fix: use the CPU's builder, or install an XPU build of torch and Intel's driver."
            )
            raise OpLoadError(msg)

    def code_problem(self, op: Op) -> str:
        problem = XpuRuntimeBuilder().incompatibility()
        return problem if problem or _prebuilt(op) is not None else SyclRuntimeBuilder().incompatibility()

    def load_runtime(self) -> None:
        XpuRuntimeBuilder().load()

    def register(self, op: Op) -> None:
        from ...accelerator.xpu_accelerator import XPU_Accelerator

        runtime = XpuRuntime(XpuRuntimeBuilder().load())
        entry = spirv(op)
        kernels = runtime.kernels(op.name, entry.binary.read_bytes(), entry.facts["symbols"])
        xpu = XPU_Accelerator()
        for device in range(xpu.device_count()):
            if device == xpu.current_device():  # on other devices it is compiled on first use
                for name, kernel in kernels.items():
                    runtime.prepare(op.name, kernel, name, device)
            units = xpu.get_device_properties(device).gpu_subslice_count  # Intel's name for Xe cores
            register_kernels(op.name, runtime, device, kernels, units)


def spirv(op: Op) -> Entry:
    """Return an op's kernels for Intel's GPUs: prebuilt, cached, or compiled now.

    Raises:
        OpError: when they must be compiled, and DPC++ or its OpenCL CPU device cannot be used.
        BuildError: when DPC++ rejects the source.
    """
    found = _prebuilt(op)
    if found is not None:
        return found
    return ensure_built(spirv_recipe(op), open_cache(environment.cache_dir()), environment.build_jobs())


def _prebuilt(op: Op) -> Entry | None:
    trace = Trace(f"the device code of '{op.name}'")
    return prebuilt.find_device_code(op.name, SPIRV, lambda: spirv_key(op), lambda _: "", trace)


class SyclOnHost:
    """The CPU through Intel's OpenCL, for tests of the SYCL code without an XPU."""

    kind = "sycl"
    namespace = "anyaccel_sycl"

    def require(self, op: str) -> None:
        choose_dpcpp()

    def code_problem(self, op: Op) -> str:
        return SyclRuntimeBuilder().incompatibility()

    def load_runtime(self) -> None:
        SyclRuntimeBuilder().load()

    def register(self, op: Op) -> None:
        runtime = host_runtime()
        entry = ensure_built(
            device_code_recipe(op, runtime), open_cache(environment.cache_dir()), environment.build_jobs()
        )
        kernels = runtime.kernels(op.name, entry.binary.read_bytes(), entry.facts["symbols"])
        register_kernels(op.name, runtime, 0, kernels)
