"""The runtime for Intel's GPUs and their SPIR-V, on Intel's OpenCL CPU device in place of a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder.engine.toolchains.sycl import probe_dpcpp
from anyaccel.op_builder.table import OPS
from anyaccel.op_builder.xpu.device import spirv

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyaccel.op_builder.op import Op

pytestmark = pytest.mark.skipif(probe_dpcpp().tool is None, reason="no DPC++")

ROOT = Path(__file__).parents[2]
WITH_KERNELS = [op for op in OPS if op.kernels and "xpu" in op.devices]
(RMS_NORM,) = (op for op in OPS if op.name == "rms_norm")


def _run_ops(*files: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "spirv", *files]
    environment = {**os.environ, "ANYACCEL_TEST_SPIRV": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout.splitlines()[-1]


def test_kernels_compute_what_the_reference_says() -> None:
    assert "41 passed" in _run_ops("tests/ops/test_rms_norm.py")


@pytest.mark.slow
def test_every_ops_kernels_compute_what_the_reference_says() -> None:
    assert "passed" in _run_ops("tests/ops")


def _capabilities(image: bytes) -> set[int]:
    """Return the operands of SPIR-V's OpCapability, which begin a module after its five words of header."""
    words = [int.from_bytes(image[i : i + 4], "little") for i in range(0, len(image), 4)]
    assert words[0] == 0x07230203
    found, place = set(), 5
    while words[place] & 0xFFFF == 17:  # OpCapability
        found.add(words[place + 1])
        place += words[place] >> 16
    return found


@pytest.mark.parametrize(
    "op", [pytest.param(op, marks=[] if op is RMS_NORM else pytest.mark.slow, id=op.name) for op in WITH_KERNELS]
)
def test_code_needs_no_double_precision(op: Op) -> None:
    """Not every GPU has it, and a driver rejects a whole module for one capability."""
    found = _capabilities(spirv(op).binary.read_bytes())
    assert 6 in found, "Kernel"
    assert 10 not in found, "Float64"


WITHOUT_TORCH = """
from anyaccel.op_builder import OpLoadError
from anyaccel.op_builder.xpu.runtime import SyclRuntimeBuilder, XpuRuntime, XpuRuntimeBuilder
SyclRuntimeBuilder().load()  # brings libsycl
runtime = XpuRuntime(XpuRuntimeBuilder().load())
try:
    runtime.prepare("rms_norm", runtime.kernels("rms_norm", b"", {"A": "a"})["A"], "A", 0)
except OpLoadError as error:
    print(error)
"""


def test_without_torchs_library_there_is_no_queue(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert "no libtorch_xpu.so with a current queue is loaded" in run_python(WITHOUT_TORCH).stdout


ON_STAND_IN = """
from types import SimpleNamespace
import torch
from tests.ops.spirv_on_host import stand_in
from anyaccel.accelerator import xpu_accelerator
from anyaccel.op_builder import OpLoadError
from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.table import OPS
from anyaccel.op_builder.xpu.device import XpuDevice, spirv
from anyaccel.op_builder.xpu.runtime import XpuRuntime, XpuRuntimeBuilder
from anyaccel.ops import DeviceKernel, device_kernel
from anyaccel.ops.kernel_launchers import XpuLauncher
torchs = stand_in()
(op,) = (op for op in OPS if op.name == "rms_norm")

def attempt(name, image, device=0):
    runtime = XpuRuntime(XpuRuntimeBuilder().load())
    try:
        runtime.prepare("rms_norm", runtime.kernels("rms_norm", image, {"A": "anyaccel_kernel_99"})["A"], "A", device)
    except OpLoadError as error:
        print(f"{name}: {error}".replace("\\n", " "))

image = spirv(op).binary.read_bytes()
attempt("no such XPU", image, 1)
attempt("no such kernel", image)
attempt("not SPIR-V", b"text")  # a driver may end the process if the code is cut off; digests find that
attempt("empty", b"")

xpu_accelerator.XPU_Accelerator = lambda: SimpleNamespace(
    device_count=lambda: 1, current_device=lambda: 0,
    get_device_properties=lambda device: SimpleNamespace(gpu_subslice_count=8))
builder_class(op.builder, "cpu")().load()
XpuDevice().register(op)
print("an op: registered")

device_kernel._LAUNCHERS["sycl", "cpu"] = XpuLauncher
scale = DeviceKernel(
    "#include <sycl/sycl.hpp>\\n"
    'extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>))'
    "void scale(float* x, float factor, long n) {"
    "  auto i = sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_linear_id();"
    "  if (i < n) x[i] *= factor;"
    "}",
    "scale", args=("tensor", "float32", "int64"), language="sycl")
x = torch.ones(1000)
scale(x, 2.0, 999, grid=8, block=128)
torchs.wait_for_xpu()
print("a user's kernel:", x.sum().item())
"""


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What a process with the stand-in printed, by the first words of each line."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ON_STAND_IN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("no such XPU", "no libtorch_xpu.so with a current queue is loaded in this process"),
        ("no such kernel", "Fix: name a kernel that the source declares extern"),
        ("not SPIR-V", "loading 'rms_norm' with SYCL failed"),
        ("empty", "loading 'rms_norm' with SYCL failed"),
        ("an op", "registered"),
        ("a user's kernel", "1999.0"),
    ],
)
def test_kernels_are_loaded_and_run_or_an_error_says_why_not(case: str, expected: str, said: dict[str, str]) -> None:
    assert expected in said[case]


BUILDS = """
from anyaccel.op_builder.xpu.device_code import host_runtime
from anyaccel.op_builder.xpu.runtime import OPTIONS
source = '#include <sycl/sycl.hpp>\\n extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(' \\
    '(sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void set(float* x) { *x = 1; }'
for _ in range(2):
    image, _, log = host_runtime().spirv_compiler().compile(source, "set.sycl", OPTIONS, ())
    print(len(image), " ".join(log.split()))
"""


def test_dpcpps_own_cache_is_not_mistaken_for_spirv(
    tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shown = run_python(BUILDS, SYCL_CACHE_PERSISTENT="1", SYCL_CACHE_DIR=str(tmp_path)).stdout.splitlines()
    assert int(shown[0]) > 20, "more than a header"
    assert shown[1].startswith("0 ")
    assert "set SYCL_CACHE_PERSISTENT=0" in shown[1]


def test_the_library_has_no_folders_of_the_machine_that_built_it() -> None:
    """It is in kernels for the Hub, and must use the libsycl that torch has loaded."""
    from anyaccel.op_builder.xpu.runtime import XpuRuntimeBuilder

    binary = XpuRuntimeBuilder().build().binary
    shown = subprocess.run(["readelf", "-d", binary], check=True, capture_output=True, text=True).stdout
    assert "libsycl.so" in shown
    assert "RPATH" not in shown
    assert "RUNPATH" not in shown
    assert str(Path(sys.prefix)).encode() not in binary.read_bytes()
