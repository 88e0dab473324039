"""Lightning Fabric sets up our modules and optimizers, on one rank and on two over shm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning_fabric import Fabric

from . import training
from .ranks import torchrun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")


def train(
    fabric: Fabric, make: Callable[..., Any], *, ours: bool, path: Path | None = None, resumes: bool = False
) -> list[float]:
    """Train two epochs; save after the first, or resume there."""
    model = training.net(ours=ours)
    model, optimizer = fabric.setup(model, make(model.parameters()))
    loader = fabric.setup_dataloaders(torch.utils.data.DataLoader(training.data(), batch_size=8))
    state = {"model": model, "optimizer": optimizer}
    if resumes:
        fabric.load(path, state)
    losses = []
    for epoch in range(int(resumes), 2):
        for x, y in loader:
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=0.5)
            optimizer.step()
            losses.append(fabric.all_reduce(loss.detach(), reduce_op="mean").item())
        if path is not None and epoch == 0 and not resumes:
            fabric.save(path, state)
    return losses


@pytest.mark.parametrize("name", training.OPTIMIZERS)
def test_losses_are_torchs_and_a_checkpoint_is_resumed(tmp_path: Path, name: str) -> None:
    ours, theirs = training.OPTIMIZERS[name]
    fabric = Fabric(accelerator="cpu", devices=1)
    losses = train(fabric, ours, ours=True, path=tmp_path / "saved.ckpt")
    assert losses == pytest.approx(train(fabric, theirs, ours=False), rel=1e-4, abs=1e-5)
    resumed = train(fabric, ours, ours=True, path=tmp_path / "saved.ckpt", resumes=True)
    assert resumed == losses[len(losses) // 2 :]


def test_two_ranks_over_shm() -> None:
    torchrun(
        """
import anyaccel.distributed
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy
from tests.ecosystem import training
from tests.ecosystem.test_fabric import train

fabric = Fabric(accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="shm"))
fabric.launch()
ours, theirs = training.OPTIMIZERS["CPUAdam"]
losses, expected = train(fabric, ours, ours=True), train(fabric, theirs, ours=False)
assert dist.get_backend() == "shm"
assert max(abs(a - b) for a, b in zip(losses, expected, strict=True)) < 1e-4, (losses, expected)
""",
        2,
    )
