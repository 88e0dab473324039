"""The CUDA runtime against a fake driver: which calls it gets, in which order, and what its errors become.

tests/ops tests on a GPU whether kernels compute the right results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from anyaccel.op_builder import OpLoadError
from anyaccel.op_builder.cuda.runtime import CudaRuntimeBuilder
from anyaccel.op_builder.table import OPS

from .conftest import stand_in_library

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

CODE = """
import ctypes, sys
torch_cuda = ctypes.CDLL(sys.argv[1] + "/libtorch_cuda.so")
from anyaccel.op_builder import OpLoadError
from anyaccel.op_builder.cuda.runtime import CudaRuntimeBuilder
runtime = CudaRuntimeBuilder().load()
library = runtime.load("scale", b"image")
kernel = runtime.kernel("scale", library, "scale_symbol")
values = [ctypes.c_int64(42), ctypes.c_float(0.5)]
runtime.launch_grid("scale", kernel, 1, (2, 3, 4), (5, 6, 7), 0, values)
for device, shared_bytes in ((0, 1024), (0, 65536), (0, 40960), (1, 40960)):
    runtime.launch_grid("scale", kernel, device, (1, 1, 1), (32, 1, 1), shared_bytes, values)
for call in (lambda: runtime.load("scale", b"bad"), lambda: runtime.kernel("scale", library, "absent")):
    try:
        call()
    except OpLoadError as error:
        print(error)
"""

OF_GROUPS = """
import ctypes, sys
torch_cuda = ctypes.CDLL(sys.argv[1] + "/libtorch_cuda.so")
from anyaccel.op_builder.cuda.runtime import CudaRuntimeBuilder
runtime = CudaRuntimeBuilder().load()
kernel = runtime.kernel("scale", runtime.load("scale", b"image"), "one_symbol")
launch = ctypes.CFUNCTYPE(
    ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p,
    ctypes.c_size_t,
)(runtime.launch)
argument = ctypes.c_int64(42)
for shape in ((5, 512, 1), (8, 32, 8), (10, 32, 4), (0x7fffffff, 32, 8)):
    assert launch(kernel, 0, *shape, ctypes.addressof(argument), 8) is None
"""

REGISTERS = """
import sys
from types import SimpleNamespace
from anyaccel.op_builder.cuda import device
from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.table import OPS
op = next(op for op in OPS if op.name == "softmax")
device._cuda = lambda: SimpleNamespace(
    device_count=lambda: 3,
    current_device=lambda: 0,
    get_device_capability=lambda number: (9, 0),
    get_device_properties=lambda number: SimpleNamespace(multi_processor_count=132),
)
symbols = {f"run<{kernel}>": kernel for kernel in op.kernels_for("cuda")}
device.device_code = lambda *_: SimpleNamespace(
    binary=SimpleNamespace(read_bytes=lambda: b"image"), facts={"symbols": symbols}
)
builder_class("SoftmaxBuilder", "cpu")().load()
device.CudaDevice().register(op)
"""


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """A folder with the two libraries."""
    for name in ("libcuda.so.1", "libtorch_cuda.so"):
        stand_in_library(name, tmp_path)
    return tmp_path


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch has brought its own libtorch_cuda.so")
def test_launches_are_on_torchs_stream_in_the_devices_context(
    stand_ins: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shown = run_python(
        CODE, str(stand_ins), LD_LIBRARY_PATH=str(stand_ins), STAND_IN_DRIVER="12040"
    ).stdout.splitlines()
    assert shown == [
        "push 101",
        "launch scale_symbol grid 2 3 4 block 5 6 7 shared 0 stream 8 arguments 42 0.5",
        "pop",
        "attribute 8 1024 device 0",
        "push 100",
        "launch scale_symbol grid 1 1 1 block 32 1 1 shared 1024 stream 7 arguments 42 0.5",
        "pop",
        "attribute 8 65536 device 0",
        "push 100",
        "launch scale_symbol grid 1 1 1 block 32 1 1 shared 65536 stream 7 arguments 42 0.5",
        "pop",
        "push 100",
        "launch scale_symbol grid 1 1 1 block 32 1 1 shared 40960 stream 7 arguments 42 0.5",
        "pop",
        "attribute 8 40960 device 1",
        "push 101",
        "launch scale_symbol grid 1 1 1 block 32 1 1 shared 40960 stream 8 arguments 42 0.5",
        "pop",
        "loading or starting 'scale' failed: cuLibraryLoadData: CUDA_ERROR_INVALID_PTX, a PTX JIT compilation failed. "
        "Fix: use code for this GPU, and an NVIDIA driver for CUDA 12.0 or newer; "
        "this driver supports CUDA 12.4.",
        "loading or starting 'scale' failed: cuLibraryGetKernel: CUDA_ERROR_NOT_FOUND, named symbol not found. "
        "Fix: use code for this GPU, and an NVIDIA driver for CUDA 12.0 or newer; "
        "this driver supports CUDA 12.4.",
    ]


OF_A_DEVICE_KERNEL = """
import torch
from anyaccel.ops.kernel_launchers import PtxLauncher
from anyaccel.ops.kernel_source import KernelSource
PtxLauncher(KernelSource("image", "scale", ".ptx", (), ()), torch.device("cuda:1"))
"""


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch has brought its own libtorch_cuda.so")
def test_a_device_kernel_is_loaded_on_its_device_before_its_first_launch(
    stand_ins: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shown = run_python(OF_A_DEVICE_KERNEL, LD_LIBRARY_PATH=str(stand_ins), STAND_IN_DRIVER="12040").stdout.splitlines()
    assert shown == ["push 101", "load scale", "pop"]


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch has brought its own libtorch_cuda.so")
def test_groups_share_blocks_and_none_is_lost(
    stand_ins: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shown = run_python(
        OF_GROUPS, str(stand_ins), LD_LIBRARY_PATH=str(stand_ins), STAND_IN_DRIVER="12040"
    ).stdout.splitlines()
    shapes = [("5", "512 1"), ("1", "32 8"), ("3", "32 4"), ("268435456", "32 8")]
    assert [line for line in shown if line.startswith("launch")] == [
        f"launch one_symbol grid {blocks} 1 1 block {threads} 1 shared 0 stream 7 arguments 42"
        for blocks, threads in shapes
    ]


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch has brought its own libtorch_cuda.so")
def test_kernels_are_loaded_when_they_are_registered_where_a_device_is_used(
    stand_ins: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    op = next(op for op in OPS if op.name == "softmax")
    shown = run_python(REGISTERS, LD_LIBRARY_PATH=str(stand_ins)).stdout.splitlines()
    assert shown == [
        line
        for device in (0, 2)
        for kernel in op.kernels_for("cuda")
        for line in (f"push {100 + device}", f"load {kernel}", "pop")
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver")
def test_no_driver_is_an_error_that_says_so() -> None:
    with pytest.raises(OpLoadError, match=r"loading or starting 'scale' failed: (no driver: libcuda|cuInit returned)"):
        CudaRuntimeBuilder().load().load("scale", b"image")
