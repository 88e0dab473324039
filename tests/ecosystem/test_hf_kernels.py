"""Hugging Face's ``kernels`` loads our RMSNorm from a folder in our package, into a module of its own and into a Llama."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from anyaccel.integrations.hf_kernels import layers, mapping, repository
from kernels import Mode, kernelize, register_kernel_mapping, use_kernel_forward_from_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore")


@use_kernel_forward_from_hub("SlowRMSNorm")
class SlowRMSNorm(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size))
        self.variance_epsilon = 1e-6

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(hidden_states.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return hidden_states * scale * self.weight


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    ours = repository("RMSNorm")
    served = {Mode.INFERENCE | Mode.TORCH_COMPILE: ours, Mode.TRAINING | Mode.TORCH_COMPILE: ours}
    register_kernel_mapping({name: {"cpu": served} for name in ("SlowRMSNorm", "RMSNorm")}, inherit_mapping=False)
    yield
    register_kernel_mapping({}, inherit_mapping=False)


def called(run: object) -> set[str]:
    with torch.profiler.profile() as profile:
        run()  # type: ignore[operator]
    return {event.key for event in profile.key_averages()}


@pytest.mark.parametrize("compiles", [False, True])
def test_a_layer_is_served(compiles: bool) -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), SlowRMSNorm(8)), torch.randn(4, 8)
    expected = model(x)
    mode = Mode.TRAINING | Mode.TORCH_COMPILE if compiles else Mode.TRAINING
    kernelize(model, mode=mode, device="cpu", use_fallback=False)
    run = torch.compile(model, fullgraph=True, backend="aot_eager") if compiles else model
    torch.testing.assert_close(run(x), expected)
    run(x).sum().backward()
    assert "anyaccel::rms_norm" in called(lambda: run(x))


def test_a_llamas_norms_are_served() -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))
    tokens = torch.randint(64, (2, 12))
    expected = model(tokens, labels=tokens).loss
    kernelize(model, mode=Mode.TRAINING, device="cpu")
    torch.testing.assert_close(model(tokens, labels=tokens).loss, expected)
    assert "anyaccel::rms_norm" in called(lambda: model(tokens))


class Halves(torch.nn.Module):
    """What torch's operators make of an activation that is multiplied by the input's other half."""

    def __init__(self, activation: torch.nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        gate, up = input.chunk(2, -1)
        result: torch.Tensor = self.activation(gate) * up
        return result


STOCK = {
    "RMSNorm": lambda: SlowRMSNorm(8),
    "LayerNorm": lambda: torch.nn.LayerNorm(8),
    "SiluAndMul": lambda: Halves(torch.nn.SiLU()),
    "GeluAndMul": lambda: Halves(torch.nn.GELU()),
    "GeluTanhAndMul": lambda: Halves(torch.nn.GELU("tanh")),
}
OPS = {"RMSNorm": "rms_norm", "LayerNorm": "layer_norm", "SiluAndMul": "swiglu"}


@pytest.mark.parametrize("name", layers.__all__)
def test_every_layer_is_served_in_place_of_torchs(name: str) -> None:
    register_kernel_mapping(mapping())
    stock = STOCK[name]()
    kind = type(f"Stock{name}", (type(stock),), {})
    use_kernel_forward_from_hub(name)(kind)
    stock.__class__ = kind
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), stock), torch.randn(4, 8)
    expected = model(x)
    kernelize(model, mode=Mode.TRAINING, device="cpu", use_fallback=False)
    torch.testing.assert_close(model(x), expected)
    model(x).sum().backward()
    assert f"anyaccel::{OPS.get(name, 'geglu')}" in called(lambda: model(x))


def test_the_mapping_has_every_layer_on_every_device() -> None:
    found = mapping()
    assert set(found) == set(layers.__all__)
    assert {device for devices in found.values() for device in devices} == {"cpu", "cuda", "rocm", "xpu"}
    assert all(repository(name).load() is not None for name in found)
    with pytest.raises(ValueError, match="got 'Attention'; expected one of GeluAndMul"):
        repository("Attention")
