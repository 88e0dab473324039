"""Colossal-AI's functions for training, by its calls, against their definitions written out."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional

from anyaccel.kernel import kernel_loader

if TYPE_CHECKING:
    pass

FLAG = torch.zeros(1, dtype=torch.int32)


def _load(name: str) -> Any:
    return getattr(kernel_loader, f"{name}Loader")().load()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("adamw_mode", [False, True])
@pytest.mark.parametrize("loss_scale", [-1.0, 128.0])
def test_cpu_adam_steps_as_torchs(dtype: torch.dtype, adamw_mode: bool, loss_scale: float) -> None:
    torch.manual_seed(0)
    start, grads = torch.randn(7, 5), torch.randn(3, 7, 5)
    mine, theirs = start.to(dtype), start.to(dtype).float().requires_grad_()
    states = torch.zeros(7, 5), torch.zeros(7, 5)
    kind = torch.optim.AdamW if adamw_mode else torch.optim.Adam
    expected = kind([theirs], lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1)
    optimizer = _load("CPUAdam").CPUAdamOptimizer(0.01, 0.8, 0.9, 1e-6, 0.1, adamw_mode)
    for number, grad in enumerate(grads, 1):
        scaled = (grad * max(loss_scale, 1.0)).to(dtype)
        theirs.grad = scaled.float() / max(loss_scale, 1.0)
        expected.step()
        optimizer.step(number, 0.01, 0.8, 0.9, 1e-6, 0.1, True, mine, scaled, *states, loss_scale)
    exact = dtype == torch.float32
    torch.testing.assert_close(
        mine.float(), theirs.detach(), rtol=1e-5 if exact else 2e-3, atol=1e-6 if exact else 2e-3
    )


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("div_scale", [-1.0, 64.0])
def test_multi_tensor_adam_divides_its_gradients(mode: int, div_scale: float) -> None:
    torch.manual_seed(0)
    params = [torch.randn(5), torch.randn(2, 3)]
    theirs = [param.clone().requires_grad_() for param in params]
    lists = [[torch.zeros_like(param) for param in params] for _ in range(2)]
    expected = (torch.optim.AdamW if mode else torch.optim.Adam)(theirs, lr=0.1, weight_decay=0.01)
    fused = _load("FusedOptimizer")
    for step in (1, 2):
        grads = [torch.randn_like(param) for param in params]
        for param, grad in zip(theirs, grads, strict=True):
            param.grad = grad / max(div_scale, 1.0)
        expected.step()
        fused.multi_tensor_adam(
            65536, FLAG, [grads, params, *lists], 0.1, 0.9, 0.999, 1e-8, step, mode, 1, 0.01, div_scale
        )
    for param, other in zip(params, theirs, strict=True):
        torch.testing.assert_close(param, other.detach(), rtol=1e-5, atol=1e-6)


def _sgd(p: float, g: float, b: float, o: dict[str, Any]) -> tuple[float, float]:
    """One number's step, like apex's kernel."""
    g *= o["scale"]
    if not o["after"]:
        g += o["wd"] * p
    if o["momentum"]:
        b = g if o["first"] else b * o["momentum"] + (1 - o["dampening"]) * g
        g = g + o["momentum"] * b if o["nesterov"] else b
    if o["after"]:
        g += o["wd"] * p
    return p - o["lr"] * g, b


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_multi_tensor_sgd_is_apexs(momentum: float, nesterov: bool, after: bool, first: bool) -> None:
    torch.manual_seed(0)
    o = {
        "wd": 0.1, "momentum": momentum, "dampening": 0.0 if nesterov else 0.2, "lr": 0.5, "nesterov": nesterov,
        "first": first, "after": after, "scale": 0.25,
    }  # fmt: skip
    params, grads, buffers = ([torch.randn(3), torch.randn(()), torch.empty(0)] for _ in range(3))
    expected = [
        [
            _sgd(*numbers, o)
            for numbers in zip(p.flatten().tolist(), g.flatten().tolist(), b.flatten().tolist(), strict=True)
        ]
        for p, g, b in zip(params, grads, buffers, strict=True)
    ]
    _load("FusedOptimizer").multi_tensor_sgd(
        65536, FLAG, [grads, params, buffers], 0.1, momentum, o["dampening"], 0.5, nesterov, first, after, 0.25
    )
    for p, b, numbers in zip(params, buffers, expected, strict=True):
        torch.testing.assert_close(p.flatten(), torch.tensor([n[0] for n in numbers]), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(b.flatten(), torch.tensor([n[1] for n in numbers]), rtol=1e-5, atol=1e-6)
    before = [p.clone() for p in params]
    _load("FusedOptimizer").multi_tensor_sgd(
        65536, FLAG + 1, [grads, params, buffers], 0.1, momentum, 0.0, 0.5, False, False, after, 1.0
    )
    assert all(map(torch.equal, params, before))


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("use_nvlamb", [False, True])
@pytest.mark.parametrize("grad_averaging", [0, 1])
def test_multi_tensor_lamb_is_apexs(mode: int, decay: float, use_nvlamb: bool, grad_averaging: int) -> None:
    torch.manual_seed(0)
    params = [torch.randn(4), torch.zeros(3), torch.randn(2, 2, dtype=torch.float16)]
    grads = [torch.randn_like(param) for param in params]
    m, v = ([torch.rand_like(param) for param in params] for _ in range(2))
    norm = torch.tensor([4.0])
    expected = []
    for tensors in zip(params, grads, m, v, strict=True):
        p, g, first, second = (tensor.double() for tensor in tensors)
        g = g / (4.0 / 2.0) + (decay * p if mode == 0 else 0)
        first = 0.9 * first + (0.1 if grad_averaging else 1.0) * g
        second = 0.99 * second + 0.01 * g * g
        update = (first / (1 - 0.9**3)) / ((second / (1 - 0.99**3)).sqrt() + 1e-6) + (decay * p if mode == 1 else 0)
        adapts = (use_nvlamb or decay) and p.norm() > 0 and update.norm() > 0
        expected.append((p - 0.1 * (p.norm() / update.norm() if adapts else 1.0) * update, first, second))
    given = copy.deepcopy(grads)
    _load("FusedOptimizer").multi_tensor_lamb(
        65536,
        FLAG,
        [grads, params, m, v],
        0.1,
        0.9,
        0.99,
        1e-6,
        3,
        1,
        decay,
        grad_averaging,
        mode,
        norm,
        2.0,
        use_nvlamb,
    )
    assert all(map(torch.equal, grads, given))
    for found, wanted in zip(zip(params, m, v, strict=True), expected, strict=True):
        for tensor, reference in zip(found, wanted, strict=True):
            close = 1e-5 if tensor.dtype == torch.float32 else 2e-3
            torch.testing.assert_close(tensor.double(), reference, rtol=close, atol=close)


@pytest.mark.parametrize(
    ("place", "wrong", "said"),
    [
        (0, torch.tensor([5.0]), r"got grads\[0\] of shape \(1\)?,?\) on cpu; expected \(4,\) on cpu"),
        (2, torch.zeros(1), r"got exp_avgs\[0\] of shape"),
        (3, torch.zeros(1), r"got exp_avg_sqs\[0\] of shape"),
        (2, torch.zeros(1).expand(4), "whose elements share memory"),
        (0, torch.ones(4, device="meta"), "on meta; expected"),
        (None, None, "got step 0; expected 1 or more"),
    ],
)
def test_what_multi_tensor_lamb_cannot_take_is_refused_before_anything_is_written(
    place: int | None, wrong: Any, said: str
) -> None:
    tensors = [torch.ones(4), torch.ones(4), torch.zeros(4), torch.zeros(4)]
    given = [tensor.clone() for tensor in tensors]
    lists = [[wrong if index == place else tensor] for index, tensor in enumerate(given)]
    with pytest.raises(ValueError if place is None else RuntimeError, match=said):
        _load("FusedOptimizer").multi_tensor_lamb(
            1, FLAG, lists, 0.1, 0.9, 0.99, 1e-6, 0 if place is None else 1, 1, 0.01, 1, 1, torch.ones(1), 1.0
        )
    assert all(map(torch.equal, given, tensors))


def test_multi_tensor_lamb_takes_no_parameters() -> None:
    _load("FusedOptimizer").multi_tensor_lamb(
        1, FLAG, [[], [], [], []], 0.1, 0.9, 0.99, 1e-6, 1, 1, 0.01, 1, 1, torch.ones(1), 1.0
    )


def test_multi_tensor_sgd_multiplies_by_a_scale_of_any_sign() -> None:
    param = torch.ones(3)
    lists = [[torch.ones(3)], [param], [torch.zeros(3)]]
    _load("FusedOptimizer").multi_tensor_sgd(1, FLAG, lists, 0.0, 0.0, 0.0, 0.1, False, True, False, -2.0)
    torch.testing.assert_close(param, torch.full((3,), 1.2))


@pytest.mark.parametrize(("norm", "most"), [(0.0, 0.0), (math.nan, 1.0)])
def test_multi_tensor_lamb_scales_down_only_what_is_larger(norm: float, most: float) -> None:
    param = torch.ones(3)
    lists = [[torch.zeros(3)], [param], [torch.zeros(3)], [torch.zeros(3)]]
    _load("FusedOptimizer").multi_tensor_lamb(
        1, FLAG, lists, 0.1, 0.9, 0.99, 1e-6, 1, 1, 0.0, 1, 1, torch.tensor([norm]), most
    )
    assert param.tolist() == [1.0] * 3


@pytest.mark.parametrize("name", ["step", "adam", "sgd", "lamb"])
def test_gradients_and_states_may_have_another_shape_of_the_same_size(name: str) -> None:
    """Colossal-AI's functions count elements only."""
    torch.manual_seed(0)
    fused, optimizer = _load("FusedOptimizer"), _load("CPUAdam").CPUAdamOptimizer(0.01, 0.8, 0.9, 1e-6, 0.1, True)
    options, norm = (0.01, 0.8, 0.9, 1e-6, 1), torch.ones(1)
    steps = {
        "step": lambda g, p, m, v: optimizer.step(1, 0.01, 0.8, 0.9, 1e-6, 0.1, True, p, g, m, v, 2.0),
        "adam": lambda *four: fused.multi_tensor_adam(65536, FLAG, [[one] for one in four], *options, 1, 1, 0.1),
        "sgd": lambda g, p, m, v: fused.multi_tensor_sgd(
            65536, FLAG, [[g], [p], [m]], 0.1, 0.9, 0.1, 0.01, False, False, True, 1.0
        ),
        "lamb": lambda *four: fused.multi_tensor_lamb(
            65536, FLAG, [[one] for one in four], *options, 1, 0.1, 1, 1, norm, 1.0
        ),
    }
    start = [torch.rand(7, 5) for _ in range(4)]
    shaped = [tensor.clone() for tensor in start]
    flat = [start[0].flatten(), start[1].clone(), start[2].flatten().clone(), start[3].flatten().clone()]
    steps[name](*shaped)
    steps[name](*flat)
    assert not torch.equal(shaped[1], start[1])
    for expected, found in zip(shaped, flat, strict=True):
        assert torch.equal(found.view(7, 5), expected)


def test_multi_tensor_scale_and_norm() -> None:
    fused, flag = _load("FusedOptimizer"), FLAG.clone()
    tensors = [torch.tensor([3.0, 4.0]), torch.tensor([12.0])]
    outputs = [torch.empty(2), torch.empty(1, dtype=torch.float16)]
    fused.multi_tensor_scale(65536, flag, [tensors, outputs], 0.5)
    assert [output.tolist() for output in outputs] == [[1.5, 2.0], [6.0]]
    assert flag.item() == 0
    fused.multi_tensor_scale(65536, flag, [[torch.tensor([math.inf])], [torch.empty(1)]], 0.5)
    assert flag.item() == 1
    total, each = fused.multi_tensor_l2norm(65536, FLAG, [tensors], True)
    assert (total.tolist(), each.tolist()) == ([13.0], [5.0, 12.0])
    assert fused.multi_tensor_l2norm(65536, FLAG, [tensors])[1].numel() == 0
    with pytest.raises(ValueError, match="got lists of 2; expected 2 of the same length"):
        fused.multi_tensor_scale(65536, flag, [tensors], 0.5)
    with pytest.raises(ValueError, match="got lists of 2, 1; expected 2 of the same length"):
        fused.multi_tensor_scale(65536, flag, [tensors, tensors[:1]], 0.5)


@pytest.mark.parametrize(
    "dtypes", [(torch.float32, torch.float32), (torch.float16, torch.float32), (torch.float16,) * 2]
)
@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_layer_norm_forward_and_backward(dtypes: tuple[torch.dtype, torch.dtype], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 5, *shape).to(dtypes[0])
    gamma, beta = (torch.randn(shape).to(dtypes[1]) for _ in range(2))
    norm = _load("LayerNorm")
    y, mean, inverse = norm.forward_affine(x, shape, gamma, beta, 1e-5)
    exact = [tensor.double().requires_grad_() for tensor in (x, gamma, beta)]
    expected = functional.layer_norm(exact[0], shape, exact[1], exact[2], 1e-5)
    close = {"rtol": 1e-5, "atol": 1e-5} if y.dtype == torch.float32 else {"rtol": 2e-3, "atol": 2e-3}
    assert y.dtype == gamma.dtype
    torch.testing.assert_close(y.double(), expected.detach(), **close)
    torch.testing.assert_close(mean, x.float().flatten(2).mean(2).flatten(), rtol=1e-4, atol=1e-5)
    grad = torch.randn(y.shape).to(y.dtype)
    expected.backward(grad.double())
    found = norm.backward_affine(grad, mean, inverse, x, shape, gamma, beta, 1e-5)
    for tensor, like, other in zip(found, (x, gamma, beta), exact, strict=True):
        assert tensor.dtype == like.dtype
        torch.testing.assert_close(
            tensor.double(),
            other.grad,
            rtol=1e-2 if like.dtype == torch.float16 else 1e-4,
            atol=2e-2 if like.dtype == torch.float16 else 1e-4,
        )
    assert torch.equal(norm.layer_norm(x.to(gamma.dtype).flatten(2), gamma.flatten(), beta.flatten()).view(y.shape), y)
    with pytest.raises(
        RuntimeError, match=r"got an input of shape .* and normalized_shape \(4,\); expected the input's last"
    ):
        norm.forward_affine(x, (4,), gamma, beta, 1e-5)


def test_both_softmax_modules_go_forward_and_back() -> None:
    torch.manual_seed(0)
    scores = torch.randn(2, 3, 4, 4, dtype=torch.float64).bfloat16()
    mask = torch.rand(2, 1, 4, 4) < 0.3
    mask[..., 0] = False
    grad = torch.randn_like(scores)
    masked, triangle = _load("ScaledMaskedSoftmax"), _load("ScaledUpperTriangleMaskedSoftmax")
    exact = scores.double().requires_grad_()
    expected = (exact * 0.5).masked_fill(mask, -torch.inf).softmax(-1)
    y = masked.forward(scores, mask.to(torch.uint8), 0.5)
    torch.testing.assert_close(y.double(), expected.detach(), rtol=1e-2, atol=1e-2)
    expected.backward(grad.double())
    torch.testing.assert_close(masked.backward(grad, y, 0.5).double(), exact.grad, rtol=3e-2, atol=2e-2)
    assert masked.get_batch_per_block(4, 4, 2, 3) == 1
    rows = scores.flatten(0, 1)
    exact = rows.double().requires_grad_()
    expected = (exact * 2.0).masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf).softmax(-1)
    y = triangle.forward(rows, 2.0)
    torch.testing.assert_close(y.double(), expected.detach(), rtol=1e-2, atol=1e-2)
    expected.backward(grad.flatten(0, 1).double())
    torch.testing.assert_close(triangle.backward(grad.flatten(0, 1), y, 2.0).double(), exact.grad, rtol=3e-2, atol=5e-2)


@pytest.mark.parametrize("choices", [1, 2])
def test_experts_with_places(choices: int) -> None:
    torch.manual_seed(choices)
    s, e, c, h = 6, 3, 4, 16
    moe = _load("Moe")
    mask = (torch.rand(choices, s) < 0.8).int()
    dest = torch.randperm(e * c)[: choices * s].view(choices, s).int()
    dest[mask == 0] = 10_000  # nothing may read these
    tokens, logits = torch.randn(s, h), torch.rand(s, e)
    taken = [(j, t, int(dest[j, t])) for j in range(choices) for t in range(s) if mask[j, t]]

    found = moe.dispatch_forward(s, e * c, h, tokens, mask, dest)
    expected = torch.zeros(e * c, h)
    for _, token, place in taken:
        expected[place] = tokens[token]
    assert torch.equal(found, expected)

    grad = torch.randn(e * c, h)
    expected = torch.zeros(s, h)
    for _, token, place in taken:
        expected[token] += grad[place]
    torch.testing.assert_close(moe.dispatch_backward(s, e * c, h, grad, mask, dest), expected)

    rows = torch.randn(e * c, h)
    rows[[place for place in range(e * c) if place not in {p for *_, p in taken}]] = math.nan
    expected = torch.zeros(s, h)
    for _, token, place in taken:
        expected[token] += logits[token, place // c] * rows[place]
    torch.testing.assert_close(moe.combine_forward(s, e, c, h, rows.view(e, c, h), logits, mask, dest), expected)

    grad = torch.randn(s, h)
    of_rows, of_logits = moe.combine_backward(s, e, c, h, grad, rows, logits, mask, dest)
    expected, expected_logits = torch.zeros(e * c, h), torch.zeros(s, e)
    for _, token, place in taken:
        expected[place] = logits[token, place // c] * grad[token]
        expected_logits[token, place // c] = grad[token] @ rows[place]
    torch.testing.assert_close(of_rows, expected)
    torch.testing.assert_close(of_logits, expected_logits)
    with pytest.raises(ValueError, match=r"got batch_tokens of shape \(6, 16\); expected \(5, 16\)"):
        moe.dispatch_forward(5, e * c, h, tokens, mask, dest)
    with pytest.raises(ValueError, match=r"expected \(1 or 2, 6\) for both"):
        moe.dispatch_forward(s, e * c, h, tokens, mask[:, :5], dest[:, :5])
    with pytest.raises(ValueError, match=r"got mask, torch.int32 of 1 dimensions, .*; expected int32 or int64, of 2"):
        moe.dispatch_forward(s, e * c, h, tokens, mask[0], dest[0])
    with pytest.raises(
        ValueError, match=r"got batch_tokens, .* torch._mkldnn; expected float32"
    ):  # torch.cat aborts on it
        moe.dispatch_forward(s, e * c, h, tokens.to_mkldnn(), mask, dest)


@pytest.mark.parametrize("place", [-1, 4])
def test_a_place_that_no_expert_has_is_refused(place: int) -> None:
    moe, mask = _load("Moe"), torch.ones(1, 2, dtype=torch.int32)
    dest = torch.tensor([[0, place]], dtype=torch.int32)
    said = "got a place in dest_idx below 0 or above 3"
    with pytest.raises(ValueError, match=f"dispatch_forward failed: {said}"):
        moe.dispatch_forward(2, 4, 3, torch.ones(2, 3), mask, dest)
    with pytest.raises(ValueError, match=f"combine_forward failed: {said}"):
        moe.combine_forward(2, 2, 2, 3, torch.ones(4, 3), torch.ones(2, 2), mask, dest)


def test_running_sums_less_one() -> None:
    moe, mask = _load("Moe"), torch.tensor([[1, 0], [1, 1], [0, 1]], dtype=torch.int32)
    found = moe.cumsum_sub_one(mask)
    assert found.dtype == torch.int32
    assert found.tolist() == [[0, -1], [1, 0], [1, 1]]
    with pytest.raises(ValueError, match=r"got torch.int64 of shape \(3, 2\); expected torch.int32"):
        moe.cumsum_sub_one(mask.long())
