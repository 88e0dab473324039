"""A third party's op, as its users get it: pybind11 compiled on first use or at installation, and CUDA sources by nvcc."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from anyaccel.op_builder import OpLoadError, ToolchainError
from anyaccel.op_builder.engine.toolchains.nvcc import pip_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anyaccel.op_builder import CUDAOpBuilder

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_op"

SCALES = """
import logging, sys
logging.basicConfig(level=logging.INFO)
sys.path.insert(0, sys.argv[1])
import torch, anyaccel_scale
builder = anyaccel_scale.ScaleBuilder()
assert builder.is_compatible(verbose=True)
op = builder.load()
assert op is builder.load() and op is anyaccel_scale.ScaleBuilder().load(verbose=True)
assert op.scale(torch.arange(3.0), factor=2.0).tolist() == [0.0, 2.0, 4.0]
try:
    op.scale(torch.ones(3, dtype=torch.int32), 2.0)
except RuntimeError as error:
    assert "scale failed: got torch.IntTensor" in str(error), error
else:
    raise SystemExit("not refused")
print(op.__file__)
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in a path with a space and a non-ASCII letter; a build may leave files there."""
    place = tmp_path_factory.mktemp("third party") / "ünser op"
    return Path(shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__")))


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_it_is_built_where_it_is_used_and_found_again(
    copied: Path, cache_dir: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    first = run_with_torch(SCALES, str(copied), ANYACCEL_CACHE_DIR=str(cache_dir))
    assert str(cache_dir) in first.stdout
    assert first.stderr.count("building the op 'scale' (") == 1
    assert "no module anyaccel_scale.scale_op is installed" in first.stderr
    again = run_with_torch(SCALES, str(copied), ANYACCEL_CACHE_DIR=str(cache_dir))
    assert again.stdout == first.stdout
    assert "building" not in again.stderr


def test_what_the_installation_compiled_is_loaded_without_a_compiler(
    copied: Path, tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # torch's builder looks for ninja in PATH
    flags = f"{os.environ.get('CFLAGS', '')} -g0"  # Python's own flags have -g, which takes 10 s more
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--target", site, copied],
        check=True,
        env={**os.environ, "SCALE_BUILD_EXT": "1", "PATH": tools, "CFLAGS": flags},
    )
    finished = run_with_torch(SCALES, str(site), ANYACCEL_CACHE_DIR=str(tmp_path / "cache"), PATH=str(tmp_path), CXX="")
    assert finished.stdout.startswith(str(site / "anyaccel_scale" / "scale_op."))
    assert "prebuilt: accepted, the installed module anyaccel_scale.scale_op" in finished.stderr
    assert not list((tmp_path / "cache").glob("scale-*"))


@pytest.fixture
def cuda_builder(monkeypatch: pytest.MonkeyPatch) -> Iterator[CUDAOpBuilder]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from anyaccel_scale import CUDAScaleBuilder

    yield CUDAScaleBuilder()
    for name in [name for name in sys.modules if name.startswith("anyaccel_scale")]:
        del sys.modules[name]


def _nvcc_is_here(builder: CUDAOpBuilder) -> CUDAOpBuilder:
    try:
        builder.toolkit()
    except ToolchainError as error:
        pytest.skip(str(error))
    return builder


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is a CUDA build")
def test_without_a_cuda_build_of_torch_it_says_so(cuda_builder: CUDAOpBuilder) -> None:
    assert not cuda_builder.is_compatible()
    with pytest.raises(OpLoadError, match=r"built without CUDA\. Fix: install a CUDA build"):
        cuda_builder.load()


@pytest.mark.timeout(600)
@pytest.mark.skipif(torch.version.cuda is None, reason="this torch is built without CUDA")
def test_its_cuda_sources_are_built_and_loaded(cuda_builder: CUDAOpBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """By pip's nvcc if it is installed, even on a machine with a toolkit."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0+PTX")
    pips = pip_home()
    if pips is not None:
        monkeypatch.setenv("CUDA_HOME", str(pips))
    assert pips in (None, _nvcc_is_here(cuda_builder).toolkit().nvcc.parents[1])
    assert cuda_builder.is_compatible()
    assert cuda_builder.load().scale(torch.arange(3.0), 2.0).tolist() == [0.0, 2.0, 4.0]
    assert os.environ["TORCH_CUDA_ARCH_LIST"] == "9.0+PTX"
    if torch.cuda.is_available():
        assert cuda_builder.load().scale(torch.arange(3.0, device="cuda"), 2.0).tolist() == [0.0, 2.0, 4.0]


@pytest.mark.timeout(600)
@pytest.mark.skipif(torch.version.cuda is not None, reason="the whole op is built with this torch")
def test_its_cuda_source_compiles_with_nvcc(
    cuda_builder: CUDAOpBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU build of torch has the headers, except the one that its CUDA build would generate."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    _nvcc_is_here(cuda_builder)
    nvcc = cuda_builder.compilers(cuda_builder.cxx())[".cu"]
    words = nvcc.words(0, EXAMPLE / "anyaccel_scale" / "csrc" / "scale_cuda.cu", "scale.o")
    subprocess.run([*words, "-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE"], cwd=tmp_path, check=True)
    assert b"scale_kernel" in (tmp_path / "scale.o").read_bytes()
    assert "scale.h" in (tmp_path / "0.d").read_text()
