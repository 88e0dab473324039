"""Traces contain our ops, and the ranges that a program pushes through the accelerator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch

from anyaccel import get_accelerator, ops

if TYPE_CHECKING:
    from pathlib import Path


def test_a_trace_names_ops_optimizers_and_ranges(tmp_path: Path) -> None:
    accelerator = get_accelerator()
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), ops.RMSNorm(8))
    optimizer = ops.FusedAdam(model.parameters(), lr=1e-3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        accelerator.range_push("forward")
        loss = model(torch.randn(4, 16)).square().mean()
        accelerator.range_pop()
        loss.backward()
        optimizer.step()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    found = {event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert {"anyaccel::rms_norm", "anyaccel::multi_tensor_adam_step", "forward"} <= found
    assert any(str(name).startswith("Optimizer.step#FusedAdam") for name in found)
