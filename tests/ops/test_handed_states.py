"""Optimizers continue from state dicts as deepspeed's and apex's classes save them; ``make test-ecosystem`` has the real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel import ops

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (1, 33, 100)
NAMES = {"sum": "exp_avg_sq"}  # of DeepSpeedCPUAdagrad
OPTIONS = {"lr": 1e-2, "weight_decay": 0.1}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "CPUAdam": ops.CPUAdam,
    "FusedAdam": ops.FusedAdam,
    "CPULion": ops.CPULion,
    "CPUAdagrad": ops.CPUAdagrad,
    "FusedLamb": ops.FusedLamb,
}


def step(params: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer, number: int) -> None:
    for param in params:
        param.grad = torch.randn(param.shape, generator=torch.Generator().manual_seed(100 * number + len(param)))
    optimizer.step()


def begun(make: Callable[..., torch.optim.Optimizer], **more: Any) -> tuple[list[Any], torch.optim.Optimizer]:
    params = [torch.nn.Parameter(torch.linspace(-1, 1, size)) for size in SIZES]
    optimizer = make(params, **OPTIONS, **more)
    for number in range(3):
        step(params, optimizer, number)
    return params, optimizer


def as_saved_by(layout: str, state_dict: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict of ours in another class's layout: options of few names, and steps as integers."""
    (group,) = state_dict["param_groups"]
    names = ("lr", "betas", "eps", "weight_decay", "bias_correction", "params")
    group = {name: group[name] for name in names if name in group}
    states = {
        number: {NAMES.get(key, key): int(value) if key == "step" else value for key, value in state.items()}
        for number, state in state_dict["state"].items()
    }
    if layout == "a counter at the last parameter":
        group["step"] = 0
        for number in range(len(SIZES) - 1):
            states[number]["step"] = 0
    if layout == "a counter at the group":
        group["step"] = states[0]["step"]
        for state in states.values():
            del state["step"]
    return {"state": states, "param_groups": [group]}


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        *((name, "a counter at each parameter") for name in OPTIMIZERS),
        *((name, "a counter at the last parameter") for name in ("CPUAdam", "FusedAdam", "CPULion")),
        *((name, "a counter at the group") for name in ("CPUAdam", "FusedAdam", "FusedLamb")),
    ],
)
def test_the_next_steps_are_those_of_the_optimizer_that_was_saved(name: str, layout: str) -> None:
    params, optimizer = begun(OPTIMIZERS[name])
    saved = as_saved_by(layout, optimizer.state_dict())
    copies = [torch.nn.Parameter(param.detach().clone()) for param in params]
    other = OPTIMIZERS[name](copies, **OPTIONS)
    other.load_state_dict(saved)
    for number in (3, 4):
        step(params, optimizer, number)
        step(copies, other, number)
    assert all(torch.equal(mine, copied) for mine, copied in zip(params, copies, strict=True))
    assert other.state_dict()["param_groups"][0].keys() >= optimizer.state_dict()["param_groups"][0].keys()
    assert "step" not in other.state_dict()["param_groups"][0]


@pytest.mark.parametrize("make", [ops.CPUAdam, ops.FusedAdam])
def test_a_saved_group_without_bias_correction_stays_without(make: Any) -> None:
    params, optimizer = begun(make, bias_correction=False)
    saved = optimizer.state_dict()
    saved["param_groups"][0]["bias_correction"] = False  # in every group of deepspeed's
    copies = [torch.nn.Parameter(param.detach().clone()) for param in params]
    other = make(copies, **OPTIONS)
    other.load_state_dict(saved)
    step(params, optimizer, 3)
    step(copies, other, 3)
    assert all(torch.equal(mine, copied) for mine, copied in zip(params, copies, strict=True))
