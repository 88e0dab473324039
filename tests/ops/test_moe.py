"""The op `moe` against its reference, on every implementation available here."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .compare import DTYPES, close, normal, opcheck
from .moe_reference import expert_order, topk_gating

BUILDER = "MoeBuilder"
CASES = [(1, 1, 1), (5, 3, 2), (17, 8, 2), (131, 67, 8), (2, 300, 16), (600, 40, 2), (1, 3000, 2), (0, 4, 2)]
"""(tokens, experts, k)"""


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("tokens", "experts", "k"), CASES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normalise", [False, True])
def test_gating_agrees_with_the_reference(
    op: Any, tokens: int, experts: int, k: int, dtype: torch.dtype, normalise: bool
) -> None:
    logits = normal(tokens, experts, dtype=dtype, device=op.device).requires_grad_()
    exact = logits.detach().double().cpu().requires_grad_()
    weights, taken, probabilities = op.functions.topk_gating(logits, k, normalise=normalise)
    expected = topk_gating(exact, k, normalise)
    assert torch.equal(taken.cpu(), expected[1])
    close(weights, expected[0])
    close(probabilities, expected[2])
    for_weights = normal(tokens, k, dtype=torch.float32, device=op.device, seed=1)
    for_all = normal(tokens, experts, dtype=torch.float32, device=op.device, seed=2)
    ((weights * for_weights).sum() + (probabilities * for_all).sum()).backward()
    ((expected[0] * for_weights.cpu()).sum() + (expected[2] * for_all.cpu()).sum()).backward()
    close(logits.grad, exact.grad, 2)


def test_ties_go_to_the_lower_expert_and_nan_stays_in_its_row(op: Any) -> None:
    logits = torch.zeros(3, 5, device=op.device)
    logits[1, 4] = logits[1, 2] = 1
    logits[2, 3] = torch.nan
    weights, taken, _ = op.functions.topk_gating(logits, 3)
    assert taken[0].tolist() == [0, 1, 2]
    assert taken[1].tolist() == [2, 4, 0]
    assert weights[:2].isfinite().all()
    assert weights[2].isnan().all()
    assert ((taken[2] >= 0) & (taken[2] < 5)).all()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("tokens", "experts", "k"), CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dispatch_and_combine_agree_with_the_reference(
    op: Any, tokens: int, experts: int, k: int, dtype: torch.dtype
) -> None:
    columns = 72 if tokens == 17 else 37  # in 16-byte tiles, and one by one
    x = normal(tokens, columns, dtype=dtype, device=op.device).requires_grad_()
    taken = topk_gating(normal(tokens, experts, dtype=torch.float64, device="cpu", seed=4), k, False)[1]
    weights = normal(tokens, k, dtype=torch.float32, device=op.device, seed=3).requires_grad_()
    routing = op.functions.route(taken.to(op.device), experts)
    order = expert_order(taken, experts)
    assert routing.counts.tolist() == [(taken == expert).sum().item() for expert in range(experts)]
    rows = op.functions.dispatch(x, routing)
    assert torch.equal(rows.cpu(), x.cpu()[[token for token, _ in order]])
    scaled = rows * 2
    y = op.functions.combine(scaled, weights, routing)
    exact = [tensor.detach().cpu().double().requires_grad_() for tensor in (x, weights)]
    expected = 2 * exact[0] * exact[1].sum(1, keepdim=True)
    close(y, expected, 3)
    grad = normal(tokens, columns, dtype=dtype, device=op.device, seed=5)
    y.backward(grad)
    expected.backward(grad.cpu().double())
    close(x.grad, exact[0].grad, 3)
    close(weights.grad, exact[1].grad, 1 if dtype == torch.float32 else 3)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f, x: f.topk_gating(x, 5), r"topk_gating failed: got k 5 of 4 experts; expected 1 to 4"),
        (lambda f, x: f.topk_gating(x, 0), r"got k 0"),
        (lambda f, x: f.topk_gating(x[0], 1), r"got logits of shape \(4\); expected \(tokens, experts\)"),
        (lambda f, x: f.topk_gating(x.long(), 1), r"got logits of int64"),
        (lambda f, x: f.topk_gating(x.new_zeros(0, 2**24 + 1), 1), r"got logits of 16777217 experts; expected at most"),
        (lambda f, x: f.dispatch(x[0], f.route(x.long()[:, :2], 4)), r"dispatch failed: got x of shape \(4\)"),
        (
            lambda f, x: f.combine(x.repeat(2, 1), x, f.route(x.long()[:, :2], 4)),
            r"combine_rows failed: got weights of shape",
        ),
        (
            lambda f, x: f.combine(x.repeat(2, 1), x.half()[:, :2], f.route(x.long()[:, :2], 4)),
            r"got weights of float16",
        ),
    ],
)
def test_wrong_arguments_are_named(op: Any, call: Any, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        call(op.functions, torch.zeros(3, 4, device=op.device))


def test_gradcheck_opcheck_and_compile(op: Any) -> None:
    if op.name == "cpu":
        logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
        for normalise in (False, True):

            def floats(logits: torch.Tensor, normalise: bool = normalise) -> tuple[torch.Tensor, ...]:
                weights, _, probabilities = op.functions.topk_gating(logits, 2, normalise=normalise)
                return weights, probabilities

            assert torch.autograd.gradcheck(floats, (logits,))
        routing = op.functions.route(op.functions.topk_gating(logits, 2)[1], 5)
        x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
        weights = torch.rand(4, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(
            lambda x, w: op.functions.combine(op.functions.dispatch(x, routing) ** 2, w, routing), (x, weights)
        )
    space = op.space
    logits = torch.randn(4, 5, device=op.device, requires_grad=True)
    opcheck(space.topk_gating.default, (logits, 2, True))

    def layer(x: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        weights, taken, _ = op.functions.topk_gating(logits, 2)
        routing = op.functions.route(taken, 5)
        return op.functions.combine(op.functions.dispatch(x, routing) * 2, weights, routing)

    x = torch.randn(4, 3, device=op.device, requires_grad=True)
    y = torch.compile(layer, fullgraph=True, backend="aot_eager")(x, logits)
    torch.testing.assert_close(y, layer(x, logits))
    y.sum().backward()
    assert x.grad is not None
    assert logits.grad is not None


@pytest.mark.parametrize("wrong", [-1, 4, 2**62, -(2**63)])
def test_indices_out_of_range_touch_no_other_memory(op: Any, wrong: int) -> None:
    """They are rejected if the host can read them; on a device they count as zero."""
    space = op.space
    x, weights = (torch.ones(*shape, device=op.device) for shape in ((4, 3), (2, 2)))
    places = torch.tensor([[0, 1], [wrong, 2]], device=op.device)
    calls: list[tuple[str, Any, Any]] = [
        ("gather_rows", lambda: space.gather_rows(x, places, None, 1), [3.0, 3.0, 0.0, 3.0]),
        ("combine_rows", lambda: space.combine_rows(x, places, weights), [6.0, 3.0]),
        ("combine_weights_backward", lambda: space.combine_weights_backward(x[:2], x, places), [6.0, 3.0]),
        ("topk_gating_backward", lambda: space.topk_gating_backward(
            weights, torch.ones(2, 4, device=op.device), torch.full((2, 4), 0.25, device=op.device), places, True,
            torch.float32), [0.0, 0.0]),
    ]  # fmt: skip
    for name, call, sums in calls:
        if op.device == "cpu":
            with pytest.raises(RuntimeError, match=rf"{name} failed: got \w+ with the index {wrong}; expected 0 to 3"):
                call()
        else:
            torch.testing.assert_close(call().sum(1).cpu(), torch.tensor(sums), rtol=0, atol=1e-6)


def test_choices_that_do_not_go_with_the_rows_are_refused(op: Any) -> None:
    space = op.space
    x, places = torch.ones(4, 3, device=op.device), torch.zeros(2, 2, dtype=torch.long, device=op.device)
    for divisor in (0, -1, -(2**63)):
        with pytest.raises(RuntimeError, match=f"gather_rows failed: got divisor {divisor}; expected 1 or more"):
            space.gather_rows(x, places, None, divisor)
    with pytest.raises(RuntimeError, match="got source with the index 3; expected 0 to 1"):  # of two weights
        space.gather_rows(x.cpu(), torch.tensor([0, 3]), torch.ones(2), 1)
    with pytest.raises(RuntimeError, match=r"combine_rows failed: got places of shape \(2, 2, 1\)"):
        space.combine_rows(x, places[..., None], None)
    with pytest.raises(RuntimeError, match="combine_rows failed: got places with the index 0"):
        space.combine_rows(x.cpu()[:0], places.cpu(), None)
    none = torch.zeros(3, 0, dtype=torch.long, device=op.device)
    assert torch.equal(space.combine_rows(x[:0], none, None).cpu(), torch.zeros(3, 3))
