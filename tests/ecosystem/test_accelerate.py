"""Hugging Face accelerate prepares our modules and optimizers like torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from accelerate import Accelerator

from . import training
from .ranks import torchrun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")


def train(
    make: Callable[..., Any], *, ours: bool, folder: Path | None = None, resumes: bool = False, epochs: int = 2
) -> list[float]:
    """Train with accumulation, clipping and a schedule; save after the first epoch, or resume there."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = training.net(ours=ours)
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    loader = torch.utils.data.DataLoader(training.data(), batch_size=8)
    model, optimizer, schedule, loader = accelerator.prepare(model, optimizer, schedule, loader)
    if resumes:
        accelerator.load_state(str(folder))
    losses = []
    for epoch in range(int(resumes), epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = (model(x) - y).square().mean()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
        if folder is not None and epoch == 0 and not resumes:
            accelerator.save_state(str(folder))
    return losses


@pytest.mark.parametrize("name", training.OPTIMIZERS)
def test_losses_are_torchs_and_a_saved_state_is_resumed(tmp_path: Path, name: str) -> None:
    ours, theirs = training.OPTIMIZERS[name]
    losses = train(ours, ours=True, folder=tmp_path)
    assert losses == pytest.approx(train(theirs, ours=False), rel=1e-4, abs=1e-5)
    assert train(ours, ours=True, folder=tmp_path, resumes=True) == losses[len(losses) // 2 :]


@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_two_ranks_train_as_one_process_does_with_torch(backend: str) -> None:
    code = f"""
import anyaccel.distributed
import torch.distributed as dist
from tests.ecosystem import training
from tests.ecosystem.test_accelerate import train

dist.init_process_group({backend!r})
ours, theirs = training.OPTIMIZERS["FusedAdam"]
assert dist.get_backend() == {backend!r}
losses, expected = train(ours, ours=True), train(theirs, ours=False)
assert max(abs(a - b) for a, b in zip(losses, expected, strict=True)) < 1e-4, (losses, expected)
dist.destroy_process_group()
"""
    torchrun(code, 2)
