"""Loading: one object per process, and clear errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import anyaccel
from anyaccel.op_builder import OpError, OpLoadError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path


def test_load_returns_the_same_object() -> None:
    builder = anyaccel.get_accelerator().create_op_builder("CPUAdamBuilder")
    assert builder.load() is builder.load(verbose=True) is anyaccel.load_op("cpu_adam")
    assert anyaccel.load_op("CPUAdamBuilder") is builder.load()
    assert builder.name == "cpu_adam"
    assert builder.absolute_name() == "anyaccel._C.cpu_adam"


def test_a_process_keeps_its_first_build(
    run_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    run_python(f"""
import os, anyaccel
first = anyaccel.load_op("cpu_adam")
os.environ["ANYACCEL_CACHE_DIR"] = {str(tmp_path / "another")!r}
assert anyaccel.load_op("cpu_adam") is first
assert not os.path.exists(os.environ["ANYACCEL_CACHE_DIR"])
""")


def test_an_unknown_op_lists_the_choices() -> None:
    with pytest.raises(OpError, match=r"'cpu' has no op 'nonsense'\. Fix: use one of: cpu_adam"):
        anyaccel.load_op("nonsense")


def test_a_builder_that_does_not_exist_is_none() -> None:
    assert anyaccel.get_accelerator().create_op_builder("NoSuchBuilder") is None
    assert anyaccel.get_accelerator().get_op_builder("NoSuchBuilder") is None


def test_host_ops_are_every_devices() -> None:
    assert anyaccel.CUDA_Accelerator().get_op_builder("CPUAdamBuilder").NAME == "cpu_adam"


def test_an_old_torch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = anyaccel.get_accelerator().create_op_builder("CPUAdamBuilder")
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    assert not builder.is_compatible(verbose=True)
    with pytest.raises(
        OpLoadError, match=r"got torch 2.9.1\+cpu; expected 2.10 or newer. Fix: pip install --upgrade torch"
    ):
        builder.load()
