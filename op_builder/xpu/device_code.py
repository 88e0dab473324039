"""SYCL kernels for the OpenCL CPU device, compiled ahead of time or on demand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.device_code import DeviceCodeRecipe
from ..engine.targets import OPENCL_CPU
from ..engine.toolchains.sycl import choose_dpcpp
from .runtime import HostSyclRuntime, SyclRuntimeBuilder, device_options, include_dirs

if TYPE_CHECKING:
    from ..op import Op

__all__ = ["SYCL_SOURCE", "device_code_recipe", "host_runtime"]

SYCL_SOURCE = Path(__file__).resolve().parents[2] / "kernels" / "sycl" / "kernels.sycl"
"""The SYCL source: next to this package in a checkout, inside it in a wheel."""


def host_runtime() -> HostSyclRuntime:
    """Return the runtime of the OpenCL CPU device, which is built if needed.

    Raises:
        OpError: when DPC++ or the device cannot be used.
    """
    return HostSyclRuntime(SyclRuntimeBuilder().load())


def device_code_recipe(op: Op, runtime: HostSyclRuntime | None = None) -> DeviceCodeRecipe:
    """Return the recipe for an op's kernels. The device compiles them, so they are for this machine only.

    Raises:
        OpError: when DPC++ or the device cannot be used.
    """
    return DeviceCodeRecipe(
        op=f"{op.name}_sycl",
        source=SYCL_SOURCE,
        include_dirs=include_dirs(),
        target=OPENCL_CPU,
        compiler=(runtime or host_runtime()).compiler(),
        options=(*device_options(choose_dpcpp().version), op.header_macro()),
        output=f"{op.name}_sycl.bin",
        kernels=op.kernels,
    )
