"""With a torch that is too old for our ops, deepspeed on the integration trains like stock: `make test-old-torch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

TRAIN = """
import torch
from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.ops.lion import DeepSpeedCPULion
for kind in (DeepSpeedCPUAdam, FusedAdam, DeepSpeedCPUAdagrad, DeepSpeedCPULion):
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 67))
    optimizer = kind([weight], lr=1e-2)
    for _ in range(3):
        weight.grad = weight.detach().sin()
        optimizer.step()
    print(kind.__name__, weight.tolist())
"""
OURS = "import anyaccel.integrations.deepspeed\n"


@pytest.mark.timeout(1200)  # stock compiles four ops
def test_every_optimizer_trains_as_with_stock_deepspeed(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    assert tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10), "this is for a torch without the stable ABI"
    stock, ours = (run_python(code, DS_ACCELERATOR="cpu") for code in (TRAIN, OURS + TRAIN))
    trained = [
        [line for line in said.stdout.splitlines() if line.startswith(("DeepSpeedCPU", "FusedAdam"))]
        for said in (stock, ours)
    ]
    assert len(trained[0]) == 4
    assert trained[0] == trained[1]
    assert ours.stderr.count("loads deepspeed's own op, as anyaccel's failed") == 4
    assert "got torch 2." in ours.stderr
