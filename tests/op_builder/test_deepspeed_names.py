"""A builder written for deepspeed finds everything it calls."""

from __future__ import annotations

import inspect
import json
import logging
import re
from typing import TYPE_CHECKING

import pytest
import torch

from anyaccel.op_builder import (
    CPUOpBuilder,
    CUDAOpBuilder,
    OpError,
    OpLoadError,
    ToolchainError,
    installed_cuda_version,
)
from anyaccel.op_builder.all_ops import every_builder
from anyaccel.op_builder.holding import HoldingBuilder

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path


class Builder(CPUOpBuilder):
    BUILD_VAR = "DS_BUILD_ANSWER"
    NAME = "answer"

    def sources(self) -> list[str]:
        return ["answer.cpp", ""]


BUILDER = Builder()

CALLED_BY_BUILDERS = {
    "absolute_name", "sources", "include_paths", "cxx_args", "nvcc_args", "extra_ldflags", "libraries_args",
    "is_compatible", "builder", "load", "jit_load", "warning", "strip_empty_entries", "command_exists", "cpu_arch",
    "simd_width", "has_function", "version_dependent_macros", "is_rocm_pytorch", "is_sycl_enabled", "deepspeed_src_path",
    "hipify_extension", "sycl_extension",
}  # fmt: skip


# In a new process, as importing deepspeed chooses an accelerator.
SIGNATURES = """
import inspect, json, sys
from deepspeed.ops.op_builder.builder import CUDAOpBuilder, OpBuilder
found = {name: getattr(OpBuilder, name, None) or getattr(CUDAOpBuilder, name) for name in sys.argv[1:]}
print(json.dumps({name: list(inspect.signature(function).parameters) for name, function in found.items()}))
"""


def test_every_name_has_deepspeeds_arguments(run_with_torch: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    said = run_with_torch(SIGNATURES, *sorted(CALLED_BY_BUILDERS), DS_ACCELERATOR="cpu").stdout
    theirs = json.loads(said.splitlines()[-1])
    assert set(theirs) == CALLED_BY_BUILDERS
    missing = {
        name: [
            argument
            for argument in arguments
            if argument not in inspect.signature(getattr(CPUOpBuilder, name)).parameters
        ]
        for name, arguments in theirs.items()
    }
    assert not any(missing.values()), missing


def test_a_builder_of_another_name_answers_as_the_one_that_it_loads() -> None:
    asked = ("absolute_name", "sources", "include_paths", "cxx_args", "nvcc_args", "extra_ldflags", "libraries_args")
    holding = [one for one in every_builder() if isinstance(one, HoldingBuilder)]
    assert holding
    for one in holding:
        assert [getattr(one, name)() for name in asked] == [getattr(one.held, name)() for name in asked], one.NAME


def test_versions_are_asked_of_the_class_as_theirs_are() -> None:
    assert CPUOpBuilder.is_rocm_pytorch() is CPUOpBuilder.is_sycl_enabled() is False
    assert CPUOpBuilder.installed_rocm_version() == (0, 0)
    assert isinstance(CPUOpBuilder.get_rocm_gpu_arch(), str)
    assert CPUOpBuilder.get_rocm_wavefront_size().isdigit()
    CPUOpBuilder.validate_torch_version({"version": ".".join(torch.__version__.split(".")[:2])})
    with pytest.raises(OpLoadError, match=r"it was compiled with torch 1\.0, and this is .* Fix: reinstall deepspeed"):
        CPUOpBuilder.validate_torch_version({"version": "1.0"})
    with pytest.raises(OpLoadError, match=r"it was compiled with CUDA 9\.0, and this"):
        CPUOpBuilder.validate_torch_op_version({"cuda_version": "9.0"})


def test_a_builder_chooses_among_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    class FromEight(CUDAOpBuilder):
        NAME = "from_eight"

        def filter_ccs(self, ccs: list[str]) -> list[list[str]]:  # like deepspeed's builders
            return [cc.split(".") for cc in ccs if int(cc.split(".")[0]) >= 8]

    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5;9.0+PTX")
    flags = FromEight().compute_capability_args()
    assert flags == ["-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5")
    with pytest.raises(OpError, match=r"filter_ccs kept none of 7\.5"):
        FromEight().compute_capability_args()


def test_no_gpu_has_no_capability() -> None:
    assert CUDAOpBuilder("answer").cuda_capability_major() is None or torch.cuda.is_initialized()


def test_the_toolkits_version_is_that_of_the_nvcc_that_compiles() -> None:
    """Also where torch is of another CUDA, with which deepspeed's builders compare it."""
    try:
        release = CUDAOpBuilder("answer").toolkit().release
    except ToolchainError as error:
        other = re.search(r"got (\d+)\.(\d+)\S* at \S+; expected \d+\.x, which torch", str(error))
        if other is None:
            with pytest.raises(ToolchainError, match="choosing nvcc failed"):
                installed_cuda_version()
            return
        release = int(other[1]), int(other[2])
    assert installed_cuda_version() == installed_cuda_version("any") == release


def test_a_folder_may_have_a_dot_and_a_file_none(tmp_path: Path) -> None:
    (tmp_path / "lib-1.2").mkdir()
    (tmp_path / "kernel").touch()
    for name in ("lib-1.2", "kernel"):
        assert BUILDER.deepspeed_src_path(str(tmp_path / name)) == str(tmp_path / name)
    with pytest.raises(OpError, match="finding a source of the op 'answer' failed"):
        BUILDER.deepspeed_src_path("no-such-source.cpp")


def test_empty_entries_are_dropped() -> None:
    assert BUILDER.strip_empty_entries(["a", "", "b"]) == ["a", "b"]
    for text in ("-O2\0x", "-DX=\ud800"):
        with pytest.raises(OpError, match="expected texts in UTF-8 without null characters"):
            BUILDER.strip_empty_entries([text])


def test_commands_are_looked_for_in_path() -> None:
    assert BUILDER.command_exists("sh")
    assert BUILDER.command_exists(["no-such-command", "sh"])
    assert not BUILDER.command_exists("no-such-command")


def test_a_function_of_the_c_library_can_be_linked_and_another_cannot(caplog: pytest.LogCaptureFixture) -> None:
    assert BUILDER.has_function("cos", ("m",))
    assert not BUILDER.has_function("no_such_function", ("m",), verbose=True)
    assert "no_such_function cannot be linked" in caplog.text


def test_an_include_directory_that_is_not_there_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Declares(CPUOpBuilder):
        NAME = "declares"

        def include_paths(self) -> list[str]:
            return ["no/such/folder", str(tmp_path)]

    assert Declares().include_dirs() == [tmp_path]
    assert "got 'no/such/folder'; expected one of" in caplog.text


def test_warnings_name_the_op(caplog: pytest.LogCaptureFixture) -> None:
    BUILDER.warning("it is slow here")
    assert caplog.record_tuples[0][1:] == (logging.WARNING, "the op 'answer': it is slow here")


def test_is_compatible_says_why_not(caplog: pytest.LogCaptureFixture) -> None:
    assert not BUILDER.is_compatible(verbose=True)
    assert "the op 'answer' cannot be loaded: finding a source" in caplog.text
