"""A rejected step or group leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel.ops import CPUAdagrad, CPULion, FusedAdam, FusedLamb, FusedLion, FusedSGD

if TYPE_CHECKING:
    from collections.abc import Callable

MAKERS: dict[str, Callable[[list[torch.Tensor]], Any]] = {
    "FusedAdam": FusedAdam,
    "FusedLamb": FusedLamb,
    "FusedLion": FusedLion,
    "FusedSGD": lambda params: FusedSGD(params, momentum=0.9, dampening=0.5),
    "CPUAdagrad": CPUAdagrad,
    "CPULion": CPULion,
}


def _parameters() -> list[torch.Tensor]:
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(3, 5)), torch.nn.Parameter(torch.randn(7))]
    for param in params:
        param.grad = torch.randn_like(param)
    return [*params]


@pytest.mark.parametrize("name", MAKERS)
def test_a_step_that_is_refused_counts_for_nothing(name: str) -> None:
    """The next one is unchanged: it has the same number, and for SGD without dampening, it is like the first."""
    plain, interrupted = _parameters(), _parameters()
    optimizers = [MAKERS[name](plain), MAKERS[name](interrupted)]
    grad, interrupted[1].grad = interrupted[1].grad, torch.ones(7).to_sparse()
    with pytest.raises(RuntimeError, match=r"failed: got gradients that are torch\.sparse_coo; expected dense ones"):
        optimizers[1].step()
    assert not any(optimizers[1].state.values())
    interrupted[1].grad = grad
    for optimizer in optimizers:
        optimizer.step()
        optimizer.step()
    for mine, theirs in zip(interrupted, plain, strict=True):
        assert torch.equal(mine, theirs)
        for key, value in optimizers[0].state[theirs].items():
            assert torch.equal(optimizers[1].state[mine][key], value)


@pytest.mark.parametrize("name", ["CPUAdagrad", "CPULion"])
def test_a_group_that_is_refused_is_not_kept(name: str) -> None:
    optimizer = MAKERS[name](_parameters())
    with pytest.raises(ValueError, match="got a parameter's device=meta; expected cpu"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.empty(3, device="meta"))]})
    assert len(optimizer.param_groups) == 1
    optimizer.step()


@pytest.mark.parametrize("kind", [FusedAdam, FusedLamb, FusedLion])
@pytest.mark.parametrize("betas", [(0.9,), (0.9, 0.99, 0.999), (0.9, 1.0)])
def test_betas_are_two(kind: Any, betas: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"got betas=.*; expected two numbers in \[0, 1\)"):
        kind(_parameters(), betas=betas)
