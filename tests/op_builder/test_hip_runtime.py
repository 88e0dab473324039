"""The HIP runtime against a stand-in for libamdhip64: what is asked of it, in which order, and what its errors become.

Nothing here, and nothing else in these tests, has run on an AMD GPU; where there is one, tests/ops runs every op.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from anyaccel.accelerator import detection
from anyaccel.accelerator.cuda_accelerator import CUDA_Accelerator
from anyaccel.op_builder import OpLoadError
from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.engine import prebuilt
from anyaccel.op_builder.hip import device as hip_device
from anyaccel.op_builder.hip.runtime import HipRuntimeBuilder
from anyaccel.op_builder.kernel_extensions import has_device
from anyaccel.op_builder.table import OPS

from .conftest import stand_in_library

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from anyaccel.op_builder.engine.cache import Cache

without_rocm = pytest.mark.skipif(torch.version.hip is not None, reason="torch has brought its own libraries")

BEGIN = """
import ctypes, sys
ctypes.CDLL(sys.argv[1] + "/libtorch_hip.so")
from anyaccel.op_builder import OpLoadError
from anyaccel.op_builder.hip.runtime import HipRuntimeBuilder
runtime = HipRuntimeBuilder().load()
start = ctypes.CFUNCTYPE(
    ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p,
    ctypes.c_size_t,
)(runtime.launch)
def launch(kernel, device, groups, threads):
    argument = ctypes.c_uint64(0xfeed)
    error = start(kernel, device, groups, threads, 1, ctypes.addressof(argument), 8)
    if error:
        print(error.decode(), flush=True)
code = runtime.load("scale", b"image")
kernel = runtime.kernel("scale", code, "scale_symbol")
"""
LAUNCHES = """
runtime.prepare("scale", kernel, 0)
launch(kernel, 0, 5, 512)
launch(kernel, 0, 5, 32)
launch(kernel, 1, 0x7fffffff, 256)
launch(kernel, 1, 7, 128)
"""
ERRORS = """
for name, of in (("bad", b"bad"), ("absent", b"image")):
    try:
        runtime.prepare("scale", runtime.kernel("scale", runtime.load("scale", of), name), 0)
    except OpLoadError as error:
        print(error, flush=True)
for name in ("faulty", "strange"):
    launch(runtime.kernel("scale", code, name), 0, 1, 64)
launch(kernel, 3, 1, 64)
launch(kernel, 9, 1, 64)
launch(kernel, 0, 1, 64)
"""
REGISTERS = """
from types import SimpleNamespace
from anyaccel.op_builder.hip import device
from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.table import OPS
op = next(op for op in OPS if op.name == "softmax")
arch = ["gfx942:sramecc+:xnack-", "gfx1100", "gfx942:sramecc+:xnack-"]
device._torchs = lambda: SimpleNamespace(
    device_count=lambda: 3,
    current_device=lambda: 2,
    get_device_properties=lambda number: SimpleNamespace(multi_processor_count=304, gcnArchName=arch[number]),
)
def code_for(op, target):
    print("code for", target, flush=True)
    symbols = {kernel: f"symbol_{number}" for number, kernel in enumerate(op.kernels_for("hip"))}
    return SimpleNamespace(binary=SimpleNamespace(read_bytes=lambda: b"image"), facts={"symbols": symbols})
device.device_code = code_for
builder_class("SoftmaxBuilder", "cpu")().load()
device.HipDevice().register(op)
"""
OF_TENSORS = """
import torch
from types import SimpleNamespace
from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.device_kernels import register_kernels
from anyaccel.op_builder.table import OPS
op = next(op for op in OPS if op.name == "rms_norm")
builder_class("RMSNormBuilder", "cpu")().load()
kernels = {name: runtime.kernel(name, code, name) for name in op.kernels_for("hip")}
register_kernels(op.name, SimpleNamespace(kind="sycl", launch=runtime.launch), 0, kernels, 304)
functions = op.functions_class()("anyaccel_sycl")
x = torch.ones(5, 100)
functions.rms_norm(x, torch.ones(100))
print(hex(x.data_ptr())[2:])
"""


@pytest.fixture
def run(tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[[str], list[str]]:
    """Return a function that runs code beside the two libraries, and returns what was printed."""
    for name in ("libamdhip64.so", "libtorch_hip.so"):
        stand_in_library(name, tmp_path, "stand_in_hip.c")

    def ran(code: str) -> list[str]:
        return run_python(BEGIN + code, str(tmp_path), LD_LIBRARY_PATH=str(tmp_path)).stdout.splitlines()

    return ran


@without_rocm
def test_launches_are_on_torchs_stream_of_the_device_and_restore_the_current_one(
    run: Callable[[str], list[str]],
) -> None:
    """Each device loads the code once; no block is smaller than a wave, and no grid has more threads than 32 bits count."""
    assert run(LAUNCHES) == [
        "load on 0",
        "launch scale_symbol on 0 grid 5 1 1 block 512 1 1 shared 0 stream 7 argument feed extra none",
        "launch scale_symbol on 0 grid 5 1 1 block 64 1 1 shared 0 stream 7 argument feed extra none",
        "device 1",
        "load on 1",
        "launch scale_symbol on 1 grid 16777215 1 1 block 256 1 1 shared 0 stream 8 argument feed extra none",
        "device 0",
        "device 1",
        "launch scale_symbol on 1 grid 7 1 1 block 128 1 1 shared 0 stream 8 argument feed extra none",
        "device 0",
    ]


@without_rocm
def test_errors_tell_the_call_and_hips_own_words(run: Callable[[str], list[str]]) -> None:
    said = [line for line in run(ERRORS) if not line.startswith("load on")]
    fix = "Fix: use a ROCm build of torch, AMD's driver, and code for this GPU."
    assert said == [
        "loading or starting 'scale' failed: hipModuleLoadData: hipErrorNoBinaryForGpu, no kernel image is available for "
        f"execution on the device. {fix}",
        f"loading or starting 'scale' failed: hipModuleGetFunction: hipErrorNotFound, named symbol not found. {fix}",
        "hipModuleLaunchKernel: hipErrorLaunchFailure, unspecified launch failure",
        "hipModuleLaunchKernel: error 12345, no explanation from the driver",
        "torch did not return its current stream",
        "hipSetDevice: hipErrorInvalidDevice, invalid device ordinal",
        "launch scale_symbol on 0 grid 1 1 1 block 64 1 1 shared 0 stream 7 argument feed extra none",
    ]


@without_rocm
def test_each_architecture_has_its_code_which_the_current_device_loads_at_once(run: Callable[[str], list[str]]) -> None:
    kernels = next(op for op in OPS if op.name == "softmax").kernels_for("hip")
    assert run(REGISTERS) == [
        "code for gfx942",
        "code for gfx1100",
        *("device 2", "load on 2", "device 0"),
        *("device 2", "device 0") * (len(kernels) - 1),
    ]


@without_rocm
def test_a_call_of_an_op_hands_the_kernel_its_struct(run: Callable[[str], list[str]]) -> None:
    """By the name of SYCL's CPU device, as torch has no tensors of ROCm here; the struct begins with the address of x."""
    loaded, launched, address = run(OF_TENSORS)
    assert loaded == "load on 0"
    expected = (
        f"launch RmsNormForward<float, float> on 0 grid 5 1 1 block 64 1 1 shared 0 stream 7 argument {address} extra"
    )
    assert launched.startswith(expected)


@without_rocm
def test_without_rocm_it_is_said_what_is_missing(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    code = """
from anyaccel.op_builder import OpLoadError
from anyaccel.op_builder.hip.runtime import HipRuntimeBuilder
try:
    HipRuntimeBuilder().load().load("scale", b"image")
except OpLoadError as error:
    print(error)
"""
    said = run_python(code).stdout
    assert said.startswith("loading or starting 'scale' failed: no HIP runtime: libamdhip64.so.6: cannot open")
    assert "Fix: use a ROCm build of torch" in said


def test_torchs_build_decides_whose_kernels_cuda_devices_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.1.0")
    monkeypatch.setattr(detection, "rejection", lambda name: "" if name == "cuda" else "not here")
    accelerator = CUDA_Accelerator()
    assert accelerator.device_name() == "cuda"
    assert accelerator.op_builder_dir() == "anyaccel.op_builder.hip"
    builder = accelerator.create_op_builder("RMSNormBuilder")
    assert (type(builder).__module__, builder.DEVICE.kind) == ("anyaccel.op_builder.hip", "hip")
    assert (has_device("hip"), has_device("cuda"), has_device("xpu")) == (True, False, False)
    monkeypatch.setattr(torch.version, "hip", None)
    assert accelerator.op_builder_dir() == "anyaccel.op_builder.cuda"
    assert type(accelerator.create_op_builder("RMSNormBuilder")).__module__ == "anyaccel.op_builder.cuda"
    assert (has_device("hip"), has_device("cuda")) == (False, True)
    assert "is built without ROCm" in detection.kernel_rejection("hip")


@without_rocm
def test_a_torch_without_rocm_is_refused_by_name() -> None:
    found = builder_class("RMSNormBuilder", "hip")
    assert found is not None
    with pytest.raises(
        OpLoadError, match=r"torch cannot use an AMD GPU here: this torch .* is built without ROCm.*Fix: "
    ):
        found().load()


def test_the_runtime_needs_neither_rocm_nor_a_gpu_to_build() -> None:
    assert HipRuntimeBuilder().build().binary.is_file()


def test_code_that_a_wheel_brings_is_taken(tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    from anyaccel.op_builder.ahead_of_time import build_orders, copy_entry, named_builders, orders
    from anyaccel.op_builder.engine.entry import read_entry
    from anyaccel.op_builder.engine.toolchains.amdgpu import probe_amdgpu

    if probe_amdgpu(cache.root).tool is None:
        pytest.skip("no ziglang")
    op = next(op for op in OPS if op.name == "rotary_embedding")
    (outcome,) = build_orders(orders(named_builders([op.name]), ["gfx1100"]))
    folder = copy_entry(outcome, tmp_path)
    monkeypatch.setattr(prebuilt, "PREBUILT", tmp_path)
    monkeypatch.setattr(hip_device, "ensure_built", None)
    taken = hip_device.device_code(op, "gfx1100")
    assert taken == read_entry(folder)
    assert set(taken.facts["symbols"]) == set(op.kernels_for("hip"))
    assert hip_device._prebuilt(op, "gfx942") is None
