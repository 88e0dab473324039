"""Says which devices the kernels were not run on here."""

from __future__ import annotations

import pytest
import torch

from .conftest import PRESENT


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_the_kernels_run_on_the_device(kind: str) -> None:
    if kind not in PRESENT:
        pytest.skip(f"no {kind} device: its kernels were compiled and not run")
    from importlib import import_module

    builder = import_module(f"anyaccel.op_builder.{kind}.kernels").RMSNormBuilder()
    assert builder.is_compatible(verbose=True)
    x = torch.randn(3, 7, device=kind)
    y = builder.load().rms_norm(x, torch.ones(7, device=kind))
    assert y.device == x.device
