"""IPEX, xccl and oneCCL, with fake packages where the real ones support only old torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import anyaccel

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path


def _package(folder: Path, name: str, code: str) -> str:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code)
    return str(folder)


@pytest.mark.parametrize(
    ("version", "imported"), [("2.6.0", True), ("2.8.0+xpu", True), ("2.9.1", False), ("2.13.0", False)]
)
def test_ipex_comes_before_torch_xpu_on_old_torch_only(
    version: str, imported: bool, tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path = _package(tmp_path, "intel_extension_for_pytorch", "import torch; torch.order.append('ipex')")
    run_with_torch(
        f"""
import torch
torch.__version__, torch.order = {version!r}, []
real = torch.get_device_module
torch.get_device_module = lambda name: (torch.order.append(name), real(name))[1]
import anyaccel
anyaccel.XPU_Accelerator()
assert torch.order == {["ipex", "xpu"] if imported else ["xpu"]!r}, torch.order
""",
        PYTHONPATH=path,
    )


@pytest.mark.parametrize(
    ("has_xccl", "oneccl", "xpu_backend", "cpu_backend"),
    [
        (True, "", "xccl", "ccl"),
        (False, "", "ccl", "ccl"),
        (False, None, "xccl", "gloo"),
        (False, "raise OSError('libccl.so is missing')", "xccl", "gloo"),
    ],
)
def test_communication_backend(
    has_xccl: bool,
    oneccl: str | None,
    xpu_backend: str,
    cpu_backend: str,
    tmp_path: Path,
    run_with_torch: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    path = str(tmp_path) if oneccl is None else _package(tmp_path, "oneccl_bindings_for_pytorch", oneccl)
    finished = run_with_torch(
        f"""
import torch.distributed, anyaccel
torch.distributed.is_xccl_available = lambda: {has_xccl}
found = anyaccel.XPU_Accelerator().communication_backend_name(), anyaccel.CPU_Accelerator().communication_backend_name()
assert found == {(xpu_backend, cpu_backend)!r}, found
""",
        PYTHONPATH=path,
    )
    assert ("cannot be imported" in finished.stderr) is bool(oneccl)


def test_cuda_uses_nccl() -> None:
    assert anyaccel.CUDA_Accelerator().communication_backend_name() == "nccl"


def test_ranges_reach_itt_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    said: list[str] = []
    monkeypatch.setattr(torch.profiler.itt, "is_available", lambda: True)
    monkeypatch.setattr(torch.profiler.itt, "range_push", said.append)
    monkeypatch.setattr(torch.profiler.itt, "range_pop", lambda: said.append("pop"))
    accelerator = anyaccel.XPU_Accelerator()
    accelerator.range_push("range")
    accelerator.range_pop()
    assert said == ["range", "pop"]
