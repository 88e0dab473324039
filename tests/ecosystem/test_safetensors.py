"""State dicts can be saved with safetensors, and exchanged with torch's own layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

from anyaccel import ops

from . import training

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(ops.RMSNorm(8), nn.RMSNorm(8)), (ops.LayerNorm(8), nn.LayerNorm(8)), (ops.Dense(8, 4), nn.Linear(8, 4))],
    ids=["RMSNorm", "LayerNorm", "Dense"],
)
def test_modules_are_saved_as_torchs(tmp_path: Path, ours: nn.Module, theirs: nn.Module) -> None:
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    save_model(ours, str(tmp_path / "saved.safetensors"))
    assert load_model(theirs, tmp_path / "saved.safetensors") == (set(), [])
    for name, value in ours.state_dict().items():
        assert torch.equal(theirs.state_dict()[name], value)


@pytest.mark.parametrize("name", training.OPTIMIZERS)
def test_optimizer_states_come_back(tmp_path: Path, name: str) -> None:
    make, _ = training.OPTIMIZERS[name]
    model = training.net(ours=True)
    optimizer = make(model.parameters())
    model(torch.randn(4, 16)).square().sum().backward()
    optimizer.step()
    kept = optimizer.state_dict()
    flat = {f"{index}.{key}": value for index, state in kept["state"].items() for key, value in state.items()}
    save_file(flat, tmp_path / "states.safetensors")
    states: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in load_file(tmp_path / "states.safetensors").items():
        index, _, field = key.partition(".")
        states.setdefault(int(index), {})[field] = value
    other = make(model.parameters())
    other.load_state_dict({**kept, "state": states})
    for param in model.parameters():
        for key, value in optimizer.state[param].items():
            assert torch.equal(other.state[param][key], value)
