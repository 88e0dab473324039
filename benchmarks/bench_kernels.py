"""The kernels, forward and backward, against eager torch and ``torch.compile``, and against the machine's streaming limit.

On the CPU; with ``--device cuda`` on a GPU, where the peers include Triton through ``torch.compile``. Bytes are what a step
must move at least: inputs read once, results written once, forward and backward.
"""

from __future__ import annotations

import argparse
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from harness import interleaved, keep_memory, show, streaming_limit
from torch.nn import functional

from anyaccel import ops
from anyaccel.op_builder.functions.moe import Routing

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = [(1024, 768), (4096, 1024), (2048, 4096), (512, 16384)]


@dataclass(frozen=True)
class Case:
    """One kernel: what makes its inputs, ours, torch's, and the elements that it moves for each of the shape's."""

    inputs: Callable[[int, int, str], list[torch.Tensor]]
    ours: Callable[..., torch.Tensor]
    eager: Callable[..., torch.Tensor]
    moved: int


def _random(*shape: int, device: str, grad: bool = True) -> torch.Tensor:
    return torch.randn(*shape, device=device).requires_grad_(grad)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat([left * c - right * s, right * c + left * s], -1)


def _heads(rows: int, columns: int, device: str) -> list[torch.Tensor]:
    angles = torch.randn(rows, 64, device=device)
    return [_random(1, rows, columns // 128, 128, device=device), angles.cos(), angles.sin()]


def _experts(rows: int, columns: int, device: str) -> list[torch.Tensor]:
    taken = torch.stack([torch.randperm(8)[:2] for _ in range(rows)]).to(device)
    routing = ops.route(taken, 8)
    return [_random(rows, columns, device=device), _random(rows, 2, device=device), routing.source, routing.places]


def _moved(x: torch.Tensor, weights: torch.Tensor, routing: Routing) -> torch.Tensor:
    return ops.combine(ops.dispatch(x, routing), weights, routing)


CASES = {
    "RMSNorm": Case(
        lambda r, c, d: [_random(r, c, device=d), _random(c, device=d)],
        lambda x, w: ops.rms_norm(x, w, 1e-6),
        lambda x, w: functional.rms_norm(x, w.shape, w, 1e-6),
        5,
    ),
    "LayerNorm": Case(
        lambda r, c, d: [_random(r, c, device=d), _random(c, device=d), _random(c, device=d)],
        lambda x, w, b: ops.layer_norm(x, w, b, 1e-5),
        lambda x, w, b: functional.layer_norm(x, w.shape, w, b, 1e-5),
        5,
    ),
    "softmax": Case(
        lambda r, c, d: [_random(r, c, device=d)],
        lambda x: ops.scaled_masked_softmax(x, None, 0.5),
        lambda x: (0.5 * x).softmax(-1),
        5,
    ),
    "SwiGLU": Case(
        lambda r, c, d: [_random(r, c, device=d), _random(r, c, device=d)],
        ops.swiglu,
        lambda gate, up: functional.silu(gate) * up,
        8,
    ),
    "causal softmax": Case(
        lambda r, c, d: [_random(r * c // 512**2, 512, 512, device=d), torch.ones(512, 512, device=d).triu(1).bool()],
        lambda x, _: ops.scaled_upper_triang_masked_softmax(x, 0.5),
        lambda x, hidden: (0.5 * x).masked_fill(hidden, -torch.inf).softmax(-1),
        5,
    ),
    "GeGLU": Case(
        lambda r, c, d: [_random(r, c, device=d), _random(r, c, device=d)],
        ops.geglu,
        lambda gate, up: functional.gelu(gate) * up,
        8,
    ),
    "bias-GELU": Case(
        lambda r, c, d: [_random(r, c, device=d), _random(c, device=d)],
        ops.bias_gelu,
        lambda x, b: functional.gelu(x + b, approximate="tanh"),
        5,
    ),
    "top-2 gating, 64 experts": Case(
        lambda r, c, d: [_random(r * c // 64, 64, device=d)],
        lambda x: ops.topk_gating(x, 2)[0],
        lambda x: x.softmax(-1).topk(2, -1)[0],
        4,
    ),
    "dispatch and combine, k = 2": Case(
        _experts,
        lambda x, w, source, places: _moved(x, w, Routing(source, places, places)),
        lambda x, w, source, places: (x[source // 2][places] * w[..., None]).sum(1),
        15,
    ),
    "rotary embedding": Case(_heads, ops.rotary_embedding, _rotate, 4),
}


def step(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> Callable[[], object]:
    """Return forward and backward as one call."""
    leaves = [tensor for tensor in inputs if tensor.requires_grad]
    grad = torch.randn_like(function(*inputs))

    def run() -> object:
        gradients = torch.autograd.grad(function(*inputs), leaves, grad)
        if grad.device.type != "cpu":
            torch.get_device_module(grad.device.type).synchronize()
        return gradients

    return run


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    limit = streaming_limit(device)
    rows, ratios = [], {}
    for name, case in CASES.items():
        against: dict[str, list[float]] = {"eager": [], "compile": []}
        for shape in SHAPES:
            torch._dynamo.reset()
            inputs = case.inputs(*shape, device)
            candidates = {"ours": case.ours, "eager": case.eager, "compile": torch.compile(case.eager)}
            steps = {key: step(call, inputs) for key, call in candidates.items()}
            times = interleaved({**steps, "limit": limit.run}, rounds=15)
            moved = case.moved * math.prod(shape) * 4
            rate = moved / times["ours"] / 1e9
            for peer, found in against.items():
                found.append(times[peer] / times["ours"])
            figures = [f"{times[key] * 1e3:.2f}" for key in ("ours", "eager", "compile")]
            peers = [f"{times[peer] / times['ours']:.2f}" for peer in against]
            size = f"{moved / 1e6:.0f}"
            rows.append(
                [
                    name,
                    f"{shape[0]} x {shape[1]}",
                    *figures,
                    *peers,
                    size,
                    f"{rate:.0f}",
                    f"{rate / limit.gb_per_s(times['limit']):.0%}",
                ]
            )
        ratios[name] = {peer: statistics.geometric_mean(found) for peer, found in against.items()}
        means = [f"{ratios[name][peer]:.2f}" for peer in against]
        rows.append([name, "geometric mean", "", "", "", *means, "", "", ""])
    columns = [
        "kernel",
        "shape",
        "ours ms",
        "eager ms",
        "compile ms",
        "eager / ours",
        "compile / ours",
        "MB",
        "GB/s",
        "of the limit",
    ]
    title = f"Forward and backward in float32 on {device}, medians"
    show("kernels" if device == "cpu" else f"kernels_{device}", title, columns, rows)


if __name__ == "__main__":
    main()
