"""SYCL kernels for the OpenCL CPU device and, as SPIR-V, for Intel's GPUs; compiled ahead of time or on demand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.device_code import DeviceCodeFacts, DeviceCodeRecipe
from ..engine.targets import OPENCL_CPU, SPIRV
from .runtime import OPTIONS, HostSyclRuntime, SyclRuntimeBuilder, include_dirs

if TYPE_CHECKING:
    from ..op import Op

__all__ = ["device_code_recipe", "host_runtime", "spirv_key", "spirv_recipe"]

_SYCL_SOURCE = Path(__file__).resolve().parents[2] / "kernels" / "sycl" / "kernels.sycl"
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
        source=_SYCL_SOURCE,
        include_dirs=include_dirs(),
        target=OPENCL_CPU,
        compiler=(runtime or host_runtime()).compiler(),
        options=(*OPTIONS, op.header_macro()),
        output=f"{op.name}_sycl.bin",
        kernels=op.kernels,
    )


def spirv_recipe(op: Op) -> DeviceCodeRecipe:
    """Return the recipe for an op's kernels for Intel's GPUs, whose driver compiles the result.

    Raises:
        OpError: when DPC++ or the OpenCL CPU device, with which it compiles, cannot be used.
    """
    return DeviceCodeRecipe(compiler=host_runtime().spirv_compiler(), **_spirv(op))


def spirv_key(op: Op) -> str:
    """Return the key of the recipe by any DPC++."""
    return DeviceCodeFacts(compiler=_AnyDpcpp(), **_spirv(op)).key()


class _AnyDpcpp:
    name = "DPC++"
    version = "any"


def _spirv(op: Op) -> dict[str, Any]:
    return {
        "op": op.name,
        "source": _SYCL_SOURCE,
        "include_dirs": include_dirs(),
        "target": SPIRV,
        "options": (*OPTIONS, op.header_macro()),
        "output": f"{op.name}.spv",
        "kernels": op.kernels,
    }
