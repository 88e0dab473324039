"""The runtime for Intel's GPUs on Intel's OpenCL CPU device: it is torch's current queue, by a stand-in for torch's library."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from anyaccel.op_builder.device_kernels import register_kernels
from anyaccel.op_builder.xpu.device import spirv
from anyaccel.op_builder.xpu.runtime import SyclRuntimeBuilder, XpuRuntime, XpuRuntimeBuilder

if TYPE_CHECKING:
    from anyaccel.op_builder.op import Op

__all__ = ["register", "stand_in", "waiting_runtime"]


class StandInBuilder(SyclRuntimeBuilder):
    """Builds the stand-in; it brings libsycl into the process, as torch's library does."""

    NAME = "stand_in_torch_xpu"
    SOURCES = (str(Path(__file__).with_name("stand_in_torch_xpu.cpp")),)

    def extra_ldflags(self) -> list[str]:
        return [*super().extra_ldflags(), "-Wl,-soname,libtorch_xpu.so"]

    def _load_library(self, binary: Path) -> ctypes.CDLL:
        SyclRuntimeBuilder().load()  # sets what DPC++'s libraries read
        return ctypes.CDLL(str(binary))


def stand_in() -> ctypes.CDLL:
    """Load the stand-in."""
    library: ctypes.CDLL = StandInBuilder().load()
    return library


@cache
def waiting_runtime() -> XpuRuntime:
    """Return the runtime, whose launches wait for the kernel, for tensors of the CPU."""
    torchs = stand_in()
    runtime = XpuRuntime(XpuRuntimeBuilder().load())
    torchs.start_by(ctypes.c_void_p(runtime.launch))
    runtime.launch = ctypes.cast(torchs.launch_and_wait, ctypes.c_void_p).value or 0
    runtime.kind = "sycl"
    return runtime


def register(op: Op) -> None:
    """Register an op's kernels, as SPIR-V, with its loaded library, in place of SYCL's for the CPU."""
    runtime, entry = waiting_runtime(), spirv(op)
    kernels = runtime.kernels(op.name, entry.binary.read_bytes(), entry.facts["symbols"])
    register_kernels(op.name, runtime, 0, kernels)
