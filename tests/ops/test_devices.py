"""Reports on which devices the kernels did not run."""

from __future__ import annotations

import pytest
import torch

from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.op import KERNEL_DEVICES

from .conftest import PRESENT, TORCHS


@pytest.mark.parametrize("kind", KERNEL_DEVICES)
def test_the_kernels_run_on_the_device(kind: str) -> None:
    if kind not in PRESENT:
        pytest.skip(f"no {kind} device: its kernels were compiled and not run")
    found = builder_class("RMSNormBuilder", kind)
    assert found is not None
    builder = found()
    assert builder.is_compatible(verbose=True)
    device = TORCHS.get(kind, kind)
    x = torch.randn(3, 7, device=device)
    y = builder.load().rms_norm(x, torch.ones(7, device=device))
    assert y.device == x.device
