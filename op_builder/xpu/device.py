"""SYCL devices for this project's ops: Intel GPUs, and the CPU through Intel's OpenCL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..device_kernels import register_kernels
from ..engine import environment
from ..engine.build import ensure_built
from ..engine.cache import open_cache
from ..engine.errors import OpLoadError
from ..engine.toolchains.sycl import choose_dpcpp
from .device_code import SYCL_SOURCE, device_code_recipe, host_runtime
from .runtime import SyclRuntimeBuilder, XpuSyclRuntime, device_options, include_dirs, with_kernels

if TYPE_CHECKING:
    from ..op import Op

__all__ = ["SyclOnHost", "XpuDevice"]


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
        return SyclRuntimeBuilder().incompatibility()

    def load_runtime(self) -> None:
        SyclRuntimeBuilder().load()

    def register(self, op: Op) -> None:
        from ...accelerator.xpu_accelerator import XPU_Accelerator

        runtime = XpuSyclRuntime(SyclRuntimeBuilder().load())
        text, symbols = with_kernels(SYCL_SOURCE.read_text(encoding="utf-8"), op.kernels)
        version = choose_dpcpp().version
        options = [*device_options(version), op.header_macro(), *(f"-I{folder}" for folder in include_dirs())]
        xpu = XPU_Accelerator()
        for device in range(xpu.device_count()):
            kernels = runtime.kernels(op.name, device, text, options, symbols)
            units = xpu.get_device_properties(device).gpu_subslice_count  # Intel's name for Xe cores
            register_kernels(op.name, runtime, device, kernels, units)


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
