"""Every kernel on misaligned memory, on denormals, under autocast, and with tensors on two devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from .compare import DTYPES, close
from .conftest import KINDS, load


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _misaligned(*shape: int, dtype: torch.dtype, device: str, scale: float) -> torch.Tensor:
    """Return random numbers that begin one element after the start of an allocation."""
    generator = torch.Generator().manual_seed(sum(shape))
    flat = torch.randn(torch.Size(shape).numel() + 1, generator=generator) * scale
    return flat.to(device, dtype)[1:].view(shape)


@pytest.mark.parametrize("scale", [1.0, 1e-39])
@pytest.mark.parametrize("dtype", DTYPES)
def test_misaligned_memory_and_denormals(kind: str, dtype: torch.dtype, scale: float) -> None:
    def function(builder: str) -> Any:
        return load(kind, builder).functions

    device = load(kind, "SoftmaxBuilder").device
    x, other = (_misaligned(5 + i, 131, dtype=dtype, device=device, scale=scale)[:5] for i in range(2))
    weight, bias = (_misaligned(131 + i, dtype=dtype, device=device, scale=1.0)[:131] for i in range(2))
    x_, other_, weight_, bias_ = (tensor.double() for tensor in (x, other, weight, bias))
    close(function("LayerNormBuilder").layer_norm(x, weight, bias), functional.layer_norm(x_, (131,), weight_, bias_))
    close(function("RMSNormBuilder").rms_norm(x, weight), functional.rms_norm(x_, (131,), weight_, 1e-6))
    close(function("SoftmaxBuilder").scaled_masked_softmax(x), x_.softmax(-1))
    activations = function("ActivationsBuilder")
    close(activations.swiglu(x, other), functional.silu(x_) * other_)
    close(activations.geglu(x, other), functional.gelu(x_) * other_)
    close(activations.bias_gelu(x, bias), functional.gelu(x_ + bias_, approximate="tanh"))
    heads = _misaligned(1, 5, 1, 130, dtype=dtype, device=device, scale=scale)
    angles = torch.linspace(0, 3, 5 * 65, device=device).view(5, 65)
    c, s = angles.cos().double()[:, None], angles.sin().double()[:, None]
    left, right = heads.double().chunk(2, -1)
    turned = function("RotaryEmbeddingBuilder").rotary_embedding(heads, angles.cos(), angles.sin())
    close(turned, torch.cat([left * c - right * s, right * c + left * s], -1))
    close(function("MoeBuilder").topk_gating(x, 3)[0], x_.softmax(-1).topk(3)[0])
    param, grad = bias.clone(), other[0].clone()
    exp_avg = torch.ones(132, device=device)[1:]
    before = param.double()
    function("LionBuilder").lion_step([param], [grad], [exp_avg], lr=0.1)
    close(param, before - 0.1)
    assert (x.double() == x_).all()


def test_autocast_reaches_the_kernels_and_gradients_come_back(kind: str) -> None:
    device = load(kind, "SoftmaxBuilder").device
    linear = torch.nn.Linear(8, 8, device=device)
    weight, bias = torch.ones(8, device=device, requires_grad=True), torch.zeros(8, device=device, requires_grad=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        x = linear(torch.randn(4, 8, device=device))
        y = load(kind, "LayerNormBuilder").functions.layer_norm(x, weight, bias)
        y = load(kind, "ActivationsBuilder").functions.swiglu(y, x)
        y = load(kind, "SoftmaxBuilder").functions.scaled_masked_softmax(y)
        tables = torch.ones(4, 4, device=device), torch.zeros(4, 4, device=device)
        y = load(kind, "RotaryEmbeddingBuilder").functions.rotary_embedding(y.view(1, 4, 1, 8), *tables)
        weights = load(kind, "MoeBuilder").functions.topk_gating(y.view(4, 8), 2)[0]
    assert y.dtype == torch.bfloat16
    assert weights.dtype == torch.float32
    weights.sum().backward()
    for leaf in (linear.weight, weight, bias):
        assert leaf.grad is not None
        assert leaf.grad.dtype == torch.float32


@pytest.mark.parametrize(
    ("builder", "call", "said"),
    [
        ("LayerNormBuilder", lambda f, x, e: f.layer_norm(x, e[0], x[0]), "layer_norm failed: got weight on meta"),
        ("ActivationsBuilder", lambda f, x, e: f.swiglu(x, e), "swiglu failed: got up on meta"),
        ("SoftmaxBuilder", lambda f, x, e: f.scaled_masked_softmax(x, e.bool()), "got mask on meta"),
        ("RotaryEmbeddingBuilder", lambda f, x, e: f.rotary_embedding(x[None, :, None], e, x), "got cos on meta"),
        ("MoeBuilder", lambda f, x, e: f.dispatch(x, f.route(e.long(), 4)), "got source on meta"),
        ("LionBuilder", lambda f, x, e: f.lion_step([x], [e], [x], lr=0.1), "lion_step failed: got grads on meta"),
        ("MultiTensorBuilder", lambda f, x, e: f.l2norm([x, e]), "got tensors on meta"),
    ],
)
def test_tensors_of_two_devices_are_refused(kind: str, builder: str, call: Any, said: str) -> None:
    op = load(kind, builder)
    with pytest.raises(RuntimeError, match=said):
        call(op.functions, torch.ones(2, 2, device=op.device), torch.ones(2, 2, device="meta"))
