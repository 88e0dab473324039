"""The fused op on the CPU against torch's optimizer, with deepspeed's signature."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import anyaccel

SHAPES = [(0,), (1,), (7, 5), (1023,), (3, 1, 65)]


@pytest.fixture(scope="module")
def op() -> Any:
    with anyaccel.use_accelerator(anyaccel.CPU_Accelerator()):
        return anyaccel.get_accelerator().create_op_builder("FusedAdamBuilder").load()


def _lists() -> list[list[torch.Tensor]]:
    torch.manual_seed(0)
    params = [torch.randn(shape) for shape in SHAPES]
    return [[torch.randn_like(p) for p in params], params, *([torch.zeros_like(p) for p in params] for _ in range(2))]


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_agrees_with_torch(op: Any, mode: int, weight_decay: float) -> None:
    grads, params, exp_avgs, exp_avg_sqs = _lists()
    expected = [param.clone().requires_grad_() for param in params]
    optimizer_class = torch.optim.AdamW if mode else torch.optim.Adam
    optimizer = optimizer_class(expected, lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=weight_decay)
    for param, grad in zip(expected, grads, strict=True):
        param.grad = grad.clone()
    for step in (1, 2, 3):
        optimizer.step()
        lists = [grads, params, exp_avgs, exp_avg_sqs]
        op.multi_tensor_adam(
            65536, torch.zeros(1, dtype=torch.int32), lists, 0.01, 0.9, 0.99, 1e-8, step, mode, 1, weight_decay
        )
    for mine, theirs in zip(params, expected, strict=True):
        torch.testing.assert_close(mine, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_a_set_flag_does_nothing(op: Any) -> None:
    lists = _lists()
    before = [tensor.clone() for tensor in lists[1]]
    op.multi_tensor_adam(65536, torch.ones(1, dtype=torch.int32), lists, 0.1, 0.9, 0.99, 1e-8, 1, 1, 1, 0.0)
    assert all(torch.equal(*pair) for pair in zip(before, lists[1], strict=True))


@pytest.mark.parametrize(("lists", "step", "mode"), [(3, 1, 1), (4, 0, 1), (4, 1, 2)])
def test_a_wrong_call_is_refused_before_anything_is_written(op: Any, lists: int, step: int, mode: int) -> None:
    given = _lists()[:lists]
    before = [tensor.clone() for tensor in given[1]]
    with pytest.raises(ValueError, match=r"multi_tensor_adam failed: got .* Fix: pass (step=1|the lists)"):
        op.multi_tensor_adam(65536, torch.zeros(1), given, 0.1, 0.9, 0.99, 1e-8, step, mode, 1, 0.0)
    assert all(torch.equal(*pair) for pair in zip(before, given[1], strict=True))


def test_a_wrong_dtype_names_the_tensor(op: Any) -> None:
    lists = _lists()
    lists[0][3] = lists[0][3].double()
    with pytest.raises(RuntimeError, match=r"adam failed: got grads\[3\]"):
        op.multi_tensor_adam(65536, torch.zeros(1), lists, 0.1, 0.9, 0.99, 1e-8, 1, 1, 1, 0.0)
