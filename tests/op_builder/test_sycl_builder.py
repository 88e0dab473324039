"""SYCL: pip's run-time compiler is found without being loaded, and third parties' sources go to icpx."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from anyaccel.op_builder import OpLoadError, SYCLOpBuilder, ToolchainError
from anyaccel.op_builder.engine.toolchains import sycl
from anyaccel.op_builder.engine.toolchains.sycl import choose_icpx, probe_dpcpp, probe_icpx
from anyaccel.op_builder.xpu.runtime import HostSyclRuntime


def _icpx(folder: Path, body: str) -> str:
    folder.mkdir()
    (folder / "icpx").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "icpx").chmod(0o755)
    return str(folder)


class Builder(SYCLOpBuilder):
    NAME = "third"


def test_icpx_is_asked_for_its_version(tmp_path: Path) -> None:
    path = _icpx(tmp_path / "bin", "echo 'Intel(R) oneAPI DPC++ 2026.2'")
    icpx = choose_icpx(path, tmp_path)
    assert icpx.command == (str(tmp_path / "bin" / "icpx"),)
    assert icpx.version == "Intel(R) oneAPI DPC++ 2026.2"


def test_an_icpx_that_fails_is_rejected(tmp_path: Path) -> None:
    probe = probe_icpx(_icpx(tmp_path / "bin", "echo no licence >&2; exit 1"), tmp_path)
    assert probe.tool is None
    assert "--version fails: exit status 1: no licence" in probe.detail
    with pytest.raises(ToolchainError, match=r"choosing a SYCL compiler failed: .*Fix: install Intel's oneAPI"):
        choose_icpx(str(tmp_path), tmp_path)


@pytest.mark.skipif(torch.version.xpu is not None, reason="this torch is an XPU build")
def test_without_an_xpu_build_of_torch_it_says_so() -> None:
    assert not Builder().is_compatible()
    with pytest.raises(OpLoadError, match=r"built without XPU\. Fix: install an XPU build"):
        Builder().load()


def _distribution(site: Path, *files: str) -> None:
    folder = site / "intel_sycl_rt-2026.2.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: intel-sycl-rt\nVersion: 2026.2.0\n")
    (folder / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text("")


def _with_site(site: Path) -> str:
    code = "from anyaccel.op_builder.engine.toolchains.sycl import probe_dpcpp; print(probe_dpcpp())"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_pips_runtime_is_found_by_its_files(tmp_path: Path) -> None:
    _distribution(tmp_path, "lib/libsycl.so.9", "lib/libsycl-jit.so", "include/sycl/sycl.hpp")
    assert "detail='2026.2.0, libsycl.so.9'" in _with_site(tmp_path)


def test_a_runtime_without_its_compiler_is_rejected(tmp_path: Path) -> None:
    _distribution(tmp_path, "lib/libsycl.so.9", "include/sycl/sycl.hpp")
    shown = _with_site(tmp_path)
    assert "intel-sycl-rt 2026.2.0 does not include libsycl-jit.so" in shown
    assert "pip install 'anyaccel[sycl]'" in shown


def test_no_runtime_is_a_rejection_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise sycl.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(sycl.metadata, "distribution", missing)
    assert (probe_dpcpp().tool, probe_dpcpp().fix) == (None, "pip install 'anyaccel[sycl]'")


def test_a_space_in_the_environments_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intel's OpenCL driver reads its own path from the process's maps, up to the first space."""
    site = tmp_path / "my environment"
    _distribution(site, "lib/libsycl.so.9", "lib/libsycl-jit.so", "include/sycl/sycl.hpp")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    found = probe_dpcpp()
    assert found.tool is not None
    assert found.detail.endswith(f"not on the CPU, as there is a space in {site / 'lib'}")

    class Library:
        anyaccel_sycl_launch = staticmethod(len)

        def anyaccel_sycl_describe(self, *_: object) -> bytes:
            return b"opencl backend failed with error: 69"

    monkeypatch.setattr("anyaccel.op_builder.xpu.runtime._address", lambda _: 0)
    with pytest.raises(
        OpLoadError, match=r"error: 69\. Fix: create the virtual environment in a folder without a space"
    ):
        HostSyclRuntime(Library())  # type: ignore[arg-type]
