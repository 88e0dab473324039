"""The layers for Hugging Face's kernels compute what the stock layers do, also where weight and states differ in dtype."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anyaccel.integrations.hf_kernels import layers

FLOATS = [torch.float32, torch.bfloat16]


class StockRMSNorm(torch.nn.Module):
    """Llama's, as transformers has it."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size).to(dtype))
        self.variance_epsilon = 1e-6

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        states = hidden_states.float()
        states = states * torch.rsqrt(states.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * states.to(hidden_states.dtype)


def _served(stock: torch.nn.Module, layer: type[torch.nn.Module], *given: Any) -> torch.Tensor:
    """Return what the layer computes with a stock layer's attributes, as ``kernelize`` calls it."""
    result: torch.Tensor = layer.forward(stock, *given)
    return result


@pytest.mark.parametrize("weight_dtype", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_rms_norm_has_the_stock_layers_dtype(weight_dtype: torch.dtype, dtype: torch.dtype) -> None:
    stock, x = StockRMSNorm(8, weight_dtype), torch.randn(3, 8).to(dtype).requires_grad_()
    expected, found = stock(x), _served(stock, layers.RMSNorm, x)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
    gradients = [torch.autograd.grad(y.float().sum(), (x, stock.weight)) for y in (expected, found)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=2e-2, atol=2e-2)


def test_layer_norm_refuses_another_shape() -> None:
    with pytest.raises(RuntimeError, match="normalized_shape"):
        _served(torch.nn.LayerNorm((3, 4)), layers.LayerNorm, torch.randn(2, 4, 3))


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"elementwise_affine": False}], ids=str)
@pytest.mark.parametrize("shape", [(8,), (2, 4)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm_takes_what_the_stock_layer_takes(options: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    stock, x = torch.nn.LayerNorm(shape, **options), torch.randn(3, 2, 4 if len(shape) == 2 else 8).to(dtype)
    with torch.no_grad():
        for parameter in stock.parameters():
            parameter.copy_(torch.rand(shape))
    found = _served(stock, layers.LayerNorm, x)
    torch.testing.assert_close(found, stock(x), rtol=1e-2, atol=1e-2)
