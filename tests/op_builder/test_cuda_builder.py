"""CUDA sources of third parties: the choice of architectures and nvcc, and the errors without nvcc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from anyaccel.op_builder import OpError, ToolchainError
from anyaccel.op_builder.cuda import CUDAOpBuilder
from anyaccel.op_builder.cuda.architectures import architecture_flags, named_architectures
from anyaccel.op_builder.engine.toolchains.nvcc import choose_nvcc, probe_nvcc

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


def _each(names: list[str]) -> list[list[str]]:
    return [name.split(".") for name in names]


def test_the_requested_architectures_are_built_for_and_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for requested in ("8.0;9.0a+PTX", "8.0 9.0a+PTX"):
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", requested)
        assert architecture_flags(_each) == [
            "-gencode=arch=compute_80,code=sm_80",
            "-gencode=arch=compute_90a,code=sm_90a",
            "-gencode=arch=compute_90a,code=compute_90a",
        ]
        assert os.environ["TORCH_CUDA_ARCH_LIST"] == requested


def test_names_of_generations_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "Ampere;Hopper")
    assert named_architectures() == ["8.0", "8.6+PTX", "9.0+PTX"]


@pytest.mark.parametrize("value", ["sm_90", "9", "8.0,9.0", ";", "9.0+ptx"])
def test_anything_else_is_refused_with_the_choices(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", value)
    with pytest.raises(OpError, match=r"reading TORCH_CUDA_ARCH_LIST failed: got .*Hopper, Blackwell. Fix: unset it"):
        named_architectures()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu_and_a_request_four_generations_are_built_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    assert named_architectures() == ["8.0", "9.0", "10.0", "12.0+PTX"]
    assert "TORCH_CUDA_ARCH_LIST" not in os.environ


def _toolkit(home: Path, *, release: str = "13.0, V13.0.88", headers: int = 13000, compiles: bool = True) -> Path:
    """Make a toolkit whose nvcc prints a version and, when run to compile, succeeds or fails."""
    (home / "bin").mkdir(parents=True)
    (home / "include").mkdir()
    (home / "include" / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {headers}\n")
    body = ":" if compiles else "echo 'ptxas fatal error: Unsupported .version 9.5' >&2; exit 255"
    nvcc = home / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\ncase $* in *--version*) echo 'Cuda release {release}'; exit;; esac\n{body}\n")
    nvcc.chmod(0o755)
    return home


def test_cuda_home_decides(tmp_path: Path) -> None:
    home = _toolkit(tmp_path / "cuda")
    toolkit = choose_nvcc(home, os.environ["PATH"], tmp_path, None)
    assert (toolkit.nvcc, toolkit.version, toolkit.release) == (home / "bin" / "nvcc", "13.0.88", (13, 0))
    assert toolkit.include_dirs == (home / "include",)


def test_nvcc_in_path_is_found(tmp_path: Path) -> None:
    home = _toolkit(tmp_path / "cuda")
    assert choose_nvcc(None, str(home / "bin"), tmp_path, None).nvcc == home / "bin" / "nvcc"


def test_parts_of_different_versions_are_rejected_with_the_command_that_mends_it(tmp_path: Path) -> None:
    (probe,) = probe_nvcc(_toolkit(tmp_path / "cuda", release="13.5, V13.5.37"), "", tmp_path, None)
    assert probe.tool is None
    assert probe.detail == "nvcc is 13.5.37, but the headers next to it are of CUDA 13.0"
    assert probe.fix == "pip install 'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-nvvm==13.0.*'"


def test_an_nvcc_that_cannot_compile_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        ToolchainError, match=r"choosing nvcc failed: none can compile: CUDA_HOME=.*Unsupported .version 9.5.*Fix: pip"
    ):
        choose_nvcc(_toolkit(tmp_path / "cuda", compiles=False), "", tmp_path, None)


def test_a_cuda_home_that_is_wrong_is_not_replaced_by_another(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"nvcc does not exist\. Fix: pip install 'anyaccel\[nvcc\]'"):
        choose_nvcc(tmp_path / "nowhere", os.environ["PATH"], tmp_path, None)
    with pytest.raises(ToolchainError, match="does not exist"):
        choose_nvcc(tmp_path / ("x" * 300), os.environ["PATH"], tmp_path, None)  # longer than a file's name may be


def test_a_toolkit_without_headers_is_rejected(tmp_path: Path) -> None:
    home = _toolkit(tmp_path / "cuda")
    (home / "include" / "cuda_runtime_api.h").unlink()
    (probe,) = probe_nvcc(home, "", tmp_path, None)
    assert (probe.tool, probe.fix) == (None, "pip install nvidia-cuda-runtime")


class _Builder(CUDAOpBuilder):
    NAME = "third"
    SOURCES = ("third.cu",)


def test_a_toolkit_of_another_major_version_than_torchs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_HOME", str(_toolkit(tmp_path / "cuda")))
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    with pytest.raises(
        ToolchainError, match=r"got 13.0.88 at .*expected 12.x, .*Fix: set CUDA_HOME to a toolkit of CUDA 12.8"
    ):
        _Builder().toolkit()


def test_importing_everything_needs_no_cuda_home(
    run_with_torch: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    run_with_torch(
        "import anyaccel.op_builder.cuda, anyaccel.op_builder.xpu\n"
        "from anyaccel.op_builder.all_ops import every_builder\n"
        "assert [type(builder.is_compatible()) for builder in every_builder()]\n",
        CUDA_HOME="/nowhere",
        PATH="/nowhere",
    )


def test_a_missing_source_is_named_with_the_places(tmp_path: Path) -> None:
    with pytest.raises(OpError, match=r"finding a source of the op 'third' failed: got 'third.cu'; expected one of"):
        _Builder().source_files()
    assert isinstance(_Builder().incompatibility(), str)


@pytest.mark.parametrize("name", ["", "../up", "a b", "a/b", "-flag", "my-op", "1op", "x.", "my.op"])
def test_a_name_that_could_be_a_path_or_a_flag_is_refused(name: str) -> None:
    class Builder(CUDAOpBuilder):
        NAME = name

    with pytest.raises(OpError, match=r"expected a valid C\+\+ name"):
        Builder()
