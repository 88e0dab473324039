"""``DeviceKernel``: SYCL source really runs here; CUDA source is compiled, and runs if there is a GPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from anyaccel.op_builder import BuildError, OpError, OpLoadError
from anyaccel.op_builder.cuda.runtime import CudaRuntimeBuilder
from anyaccel.op_builder.engine.toolchains.nvrtc import probe_nvrtc
from anyaccel.op_builder.engine.toolchains.sycl import probe_dpcpp
from anyaccel.ops import DeviceKernel

from .conftest import PRESENT

if TYPE_CHECKING:
    from pathlib import Path

SYCL = """
#include <sycl/sycl.hpp>
extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>))
void scale(float* x, float factor, long n) {
  auto i = sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_linear_id();
  if (i < n) x[i] *= factor PLUS;
}
"""
CUDA = """
template <typename T>
__global__ void scale(T* x, float factor, long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) x[i] = T(float(x[i]) * factor);
}
"""
ARGS = ("tensor", "float32", "int64")
NEEDS_SYCL = pytest.mark.skipif(probe_dpcpp().tool is None, reason=f"no DPC++: {probe_dpcpp().detail}")
NEEDS_NVRTC = pytest.mark.skipif(probe_nvrtc().tool is None, reason=f"no NVRTC: {probe_nvrtc().detail}")
NEEDS_CUDA = pytest.mark.skipif("cuda" not in PRESENT, reason="no cuda device: the kernel was compiled and not run")


def _sycl(plus: str = "") -> DeviceKernel:
    return DeviceKernel(SYCL.replace("PLUS", plus), "scale", ARGS, language="sycl")


@NEEDS_SYCL
def test_sycl_source_runs_on_cpu_tensors() -> None:
    x = torch.arange(1000.0)
    kernel = _sycl()
    for times in (1, 2):
        kernel(x, 2.0, 900, grid=8, block=128)
        assert x[899].item() == 899 * 2.0**times
        assert x[900].item() == 900.0
    assert x._version == 2
    kernel(x, 2.0, 900, grid=0, block=128)
    assert x[1].item() == 4.0


@NEEDS_SYCL
def test_options_and_headers_reach_the_compiler(tmp_path: Any) -> None:
    (tmp_path / "more.h").write_text("inline float more() { return AMOUNT; }\n")
    source = '#include "more.h"\n' + SYCL.replace("PLUS", "+ more()")
    kernel = DeviceKernel(source, "scale", ARGS, language="sycl", options=["-DAMOUNT=3"], include_dirs=[tmp_path])
    x = torch.ones(4)
    kernel(x, 2.0, 4, grid=1, block=4)
    assert x.tolist() == [5.0] * 4


@NEEDS_SYCL
def test_an_error_names_the_line_and_the_log() -> None:
    with pytest.raises(
        BuildError, match=r"kernel-[0-9a-f]+\.sycl:6:\d+: error: use of undeclared identifier 'nothing'"
    ):
        _sycl("+ nothing")(torch.ones(1), 1.0, 1, grid=1, block=1)


@NEEDS_SYCL
def test_an_error_names_the_file_of_a_source_that_was_given_as_one(tmp_path: Path) -> None:
    file = tmp_path / 'a "quoted" name.sycl'
    file.write_text(SYCL.replace("PLUS", "+ nothing"))
    kernel = DeviceKernel(file, "scale", ARGS, language="sycl")
    with pytest.raises(
        BuildError, match=re.escape(f"{file}:6:") + r"\d+: error: use of undeclared identifier 'nothing'"
    ):
        kernel(torch.ones(1), 1.0, 1, grid=1, block=1)


@NEEDS_SYCL
def test_a_name_that_the_source_lacks_is_an_error() -> None:
    kernel = DeviceKernel(SYCL.replace("PLUS", ""), "scael", ARGS, language="sycl")
    with pytest.raises(OpLoadError, match=r"loading 'scael' with SYCL failed.*declares extern \"C\", if scael is none"):
        kernel(torch.ones(1), 1.0, 1, grid=1, block=1)


@NEEDS_NVRTC
@pytest.mark.parametrize("name", ["scale<float>", "scale<double>"])
def test_cuda_source_compiles_without_a_gpu(name: str) -> None:
    entry = DeviceKernel(CUDA, name, ARGS).compile("sm_90")
    assert entry.binary.read_bytes().startswith(b"\x7fELF")
    assert entry.facts["symbols"][name].startswith("_Z5scale")


@NEEDS_NVRTC
def test_nvrtc_and_the_emulator_accept_the_same_constants_and_functions() -> None:
    source = """
    extern "C" __global__ void classify(const float* x, float* y) {
      size_t i = threadIdx.x;
      float lowest = -INFINITY;
      y[i] = isnan(x[i]) ? NAN : isinf(x[i]) ? lowest : max(x[i], fminf(lowest, 0.0f));
      assert(isfinite(x[i]) || isnan(y[i]) || y[i] < 0);
    }"""
    kernel = DeviceKernel(source, "classify", ("tensor", "tensor"))
    assert kernel.compile("sm_90").binary.read_bytes().startswith(b"\x7fELF")
    x, y = torch.tensor([1.5, torch.inf, torch.nan]), torch.empty(3)
    kernel(x, y, grid=1, block=3)
    assert torch.equal(y.nan_to_num(7.0, neginf=-1.0), torch.tensor([1.5, -1.0, 7.0]))


@NEEDS_NVRTC
def test_a_cuda_error_names_the_line() -> None:
    with pytest.raises(BuildError, match=r"kernel-[0-9a-f]+\.cu\(5\): error: identifier \"nothing\" is undefined"):
        DeviceKernel(CUDA.replace("* factor", "* nothing"), "scale<float>", ARGS).compile("sm_90")


@NEEDS_NVRTC
def test_an_instance_that_cannot_be_made_is_an_error() -> None:
    with pytest.raises(BuildError, match="scael"):
        DeviceKernel(CUDA, "scael<float>", ARGS).compile("sm_90")


@NEEDS_CUDA
@pytest.mark.parametrize("language", ["cuda", "ptx"])
def test_cuda_source_and_ptx_run(language: str) -> None:
    kernel = DeviceKernel(CUDA, "scale<float>", ARGS)
    if language == "ptx":
        entry = kernel.compile("compute_80")
        kernel = DeviceKernel(entry.binary.read_text(), entry.facts["symbols"]["scale<float>"], ARGS, language="ptx")
    x = torch.arange(1000.0, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        kernel(x, 2.0, 900, grid=8, block=128)
    torch.cuda.synchronize()
    assert x[899].item() == 1798.0
    assert x[900].item() == 900.0


@pytest.mark.parametrize(
    ("values", "grid", "error", "said"),
    [
        ((torch.ones(1), 1.0), 1, TypeError, "got 2 values; expected 3"),
        ((1, 1.0, 1), 1, TypeError, r"got int for args\[0\]; expected a tensor"),
        ((torch.ones(2, 2).t(), 1.0, 1), 1, ValueError, r"got a strided tensor for args\[0\]"),
        ((torch.ones(1), 1.0, 2**70), 1, ValueError, r"for args\[2\]; expected a number that int64 holds"),
        ((torch.ones(1), "one", 1), 1, TypeError, r"got str for args\[1\]; expected a number for float32"),
        ((torch.ones(1), torch.ones(2), 1), 1, TypeError, r"got Tensor for args\[1\]; expected a number for float32"),
        ((torch.ones(1), torch.ones(1, device="meta"), 1), 1, TypeError, r"got Tensor for args\[1\]; expected a number"),
        ((torch.ones(1, device="meta"), 1.0, 1), 1, ValueError, "got tensors on meta; expected xpu and cpu tensors for sycl"),
        ((torch.ones(1), 1.0, 1), -1, ValueError, "got grid -1; expected 1 to 3 integers from 0 to 2147483647"),
        ((torch.ones(1), 1.0, 1), (1, 1, 1, 1), ValueError, "expected 1 to 3 integers"),
        ((torch.ones(1), 1.0, 1), (1, 2), ValueError, "expected one dimension and no shared bytes for SYCL"),
    ],
)  # fmt: skip
def test_wrong_launches_are_named(values: Any, grid: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        _sycl()(*values, grid=grid, block=1)


@NEEDS_SYCL
def test_a_sycl_source_without_a_kernel_says_how_one_is_marked() -> None:
    kernel = DeviceKernel("#include <sycl/sycl.hpp>\nvoid k(float* x) { *x = 1; }", "k", ("tensor",), language="sycl")
    with pytest.raises(BuildError, match=r"the source has no kernel; .* SYCL_EXT_ONEAPI_FUNCTION_PROPERTY"):
        kernel(torch.ones(1), grid=1, block=1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DeviceKernel("", "k", (), language="hip"), "got language 'hip'; expected one of cuda, ptx, sycl"),
        (
            lambda: DeviceKernel("", "k", ("float",)),
            r"got args \['float'\]; expected some of tensor, const tensor, bool",
        ),
        (lambda: DeviceKernel("", "k", "tensor"), "got args='tensor'; expected a list of texts"),
        (lambda: DeviceKernel("", "k", cast("Any", None)), "got args=None; expected a list of texts"),
        (lambda: DeviceKernel(cast("Any", b""), "k", ()), "got source of type bytes; expected a text or a Path"),
        (lambda: DeviceKernel("", cast("Any", None), ()), "got a name of type NoneType; expected a text"),
        (lambda: _sycl().compile("sm_90"), "got language 'sycl'; expected 'cuda'"),
        (
            lambda: DeviceKernel(CUDA, "scale<float>", ARGS).compile("sm90"),
            "got target 'sm90'; expected an architecture",
        ),
    ],
)
def test_wrong_kernels_are_named(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize(
    ("language", "fix"), [("cuda", "move the tensors to the CPU"), ("ptx", "use CUDA source on CPU")]
)
def test_amd_gpus_are_refused_before_nvidias_driver_is_opened(
    monkeypatch: pytest.MonkeyPatch, language: Any, fix: str
) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.1")
    monkeypatch.setattr(CudaRuntimeBuilder, "load", lambda *_: pytest.fail("CUDA's runtime is loaded"))
    kernel = DeviceKernel("", "scale", ("tensor",), language=language)
    with pytest.raises(ValueError, match=f"{language} source for cuda:1, an AMD GPU .*Fix: {fix}"):
        kernel._launcher(torch.device("cuda:1"))  # such a tensor needs such a GPU


def test_tensors_on_two_devices_are_refused() -> None:
    kernel = DeviceKernel(SYCL, "scale", ("tensor", "tensor"), language="sycl")
    with pytest.raises(ValueError, match="got cpu, meta; expected tensors on one device"):
        kernel(torch.ones(1), torch.ones(1, device="meta"), grid=1, block=1)


ADDS = """
#ifndef STEP
#define STEP 1
#endif
extern "C" __global__ void add(float* x) { x[threadIdx.x] += STEP; }
"""
NEGATIVE = torch.tensor([1 + 2j]).conj().imag
FREED, SHRUNK = torch.ones(4), torch.ones(4)
SHRUNK_PART = SHRUNK[2:]
FREED.untyped_storage().resize_(0)
SHRUNK.untyped_storage().resize_(8)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (NEGATIVE, "whose memory has other numbers"),
        (torch.ones(2, dtype=torch.complex64).conj(), "whose memory has other numbers"),
        (torch.ones(2).to_sparse(), "of layout torch.sparse_coo.*Fix: pass tensor.to_dense"),
        (FREED, "whose storage was freed"),
        (SHRUNK, "whose storage was freed"),
        (SHRUNK_PART, "whose storage was freed"),
    ],
    ids=["negative", "conjugate", "sparse", "freed", "shrunk", "shrunk part"],
)
def test_a_tensor_whose_memory_is_not_its_numbers_is_refused(value: torch.Tensor, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DeviceKernel(ADDS, "add", args=("tensor",))(value, grid=1, block=1)


@pytest.mark.parametrize(
    "sizes",
    [
        {"grid": 2.0}, {"grid": None}, {"grid": "1"}, {"grid": 2**64 + 1}, {"grid": (1, 2**31)}, {"grid": -1}, {"grid": ()},
        {"block": 0}, {"block": 2**40}, {"block": (1, 1, 1, 1)}, {"shared_bytes": None}, {"shared_bytes": -1},
        {"shared_bytes": 2**32},
    ],
    ids=str,
)  # fmt: skip
def test_sizes_that_no_device_has_are_refused(sizes: dict[str, Any]) -> None:
    x = torch.zeros(1)
    with pytest.raises(ValueError, match=f"launching 'add' failed: got {next(iter(sizes))} .*Fix: pass"):
        DeviceKernel(ADDS, "add", args=("tensor",))(x, **{"grid": 1, "block": 1, **sizes})
    assert x.item() == 0


def test_options_and_folders_are_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: Any
    for wrong in ("-DSTEP=5", b"-DSTEP=5", [5]):
        with pytest.raises(ValueError, match=r"got options=.*expected a list of texts. Fix: pass options="):
            DeviceKernel(ADDS, "add", args=("tensor",), options=wrong)
    for wrong in ("inc", tmp_path, [None], None):
        with pytest.raises(ValueError, match=r"got include_dirs=.*expected a list of texts"):
            DeviceKernel(ADDS, "add", args=("tensor",), include_dirs=wrong)
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "step.h").write_text("#define STEP 7\n")
    monkeypatch.chdir(tmp_path)
    x = torch.zeros(2)
    options: Any
    for options in (["-Iinc"], (option for option in ["-Iinc"])):
        DeviceKernel('#include "step.h"\n' + ADDS, "add", args=("tensor",), options=options)(x.zero_(), grid=1, block=2)
        assert x.tolist() == [7, 7]


SQUARE = """
__global__ void square(const float* x, float* y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];
}
"""


def test_what_a_kernel_only_reads_stays_unchanged_to_autograd() -> None:
    """A saved tensor can be read by the kernels of a second pass too."""
    kernel = DeviceKernel(SQUARE, "square", ("const tensor", "tensor", "int32"))
    saved, result = torch.arange(4.0).requires_grad_().exp(), torch.empty(4)
    version = result._version
    kernel(saved.detach(), result, 4, grid=1, block=32)
    assert (saved._version, result._version) == (0, version + 1)
    assert torch.equal(result, saved.detach() ** 2)
    kernel(saved.detach(), result, 4, grid=0, block=32)
    assert result._version == version + 1


def test_only_a_pointer_to_const_is_one_that_is_only_read() -> None:
    kernel = DeviceKernel(SQUARE, "square", ("const tensor", "const tensor", "int32"))
    with pytest.raises(
        ValueError, match=r"got 'const tensor' for args\[1\]; expected a parameter that points to const float"
    ):
        kernel(torch.ones(4), torch.ones(4), 4, grid=1, block=32)


def test_a_number_that_no_float_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="a number that float64 holds"):
        DeviceKernel(ADDS, "add", args=("tensor", "float64"))(torch.zeros(1), 10**400, grid=1, block=1)


@pytest.mark.parametrize(
    "option",
    ["-Xclang", "-optf", "-cxx-isystem", "--sysroot=/x", "--ptxas-options=-v,--options-file=/x"]
    + [
        f"{dashes}{option}" for dashes in ("-", "--") for option in ("use-pch=/x", "create-pch=/x", "pch-dir=/x", "pch")
    ],
)
def test_an_option_that_may_name_a_file_is_refused(option: str) -> None:
    with pytest.raises(OpError, match=f"the option '{option}'"):
        DeviceKernel("extern __global__ void k() {}", "k", (), options=[option, "file"]).compile("sm_90")
