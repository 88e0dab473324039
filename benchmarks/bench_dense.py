"""A dense layer, forward and backward, in each mode that runs here, against eager torch and torch.compile."""

from __future__ import annotations

import argparse
import statistics
from typing import TYPE_CHECKING, Any

import torch
from harness import interleaved, keep, keep_memory, records, show

from anyaccel.ops import Dense

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES = 1024
ROWS = (64, 256, 1024, 4096)


class Eager(torch.nn.Linear):
    """torch's own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(super().forward(x))


def stepper(layer: torch.nn.Module, rows: int, device: str) -> Callable[[], object]:
    x = torch.randn(rows, FEATURES, device=device, requires_grad=True)
    grad = torch.randn(rows, FEATURES, device=device)
    synchronize = torch.get_device_module(device).synchronize

    def step() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x).backward(grad)
        synchronize()

    return step


def layers_on(device: str) -> dict[str, torch.nn.Module]:
    """Return our modes, the device's own first, and the peers."""
    modes: tuple[Any, ...] = ("cpp", "py") if device == "cpu" else ("ptx", "triton", "py")
    compiled = Eager(FEATURES, FEATURES, device=device)
    compiled.compile()
    return {
        "default": Dense(FEATURES, FEATURES, device=device),
        **{mode: Dense(FEATURES, FEATURES, mode=mode, device=device) for mode in modes},
        "eager": Eager(FEATURES, FEATURES, device=device),
        "compile": compiled,
    }


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    layers = layers_on(device)
    first = "cpp" if device == "cpu" else "default"
    columns = ["rows", *(f"{name} ms" for name in layers), f"py / {first}", "eager / default", "compile / default"]
    topic = "dense" if device == "cpu" else f"dense_{device}"
    title = f"Dense {FEATURES} x {FEATURES}, float32, forward and backward, {device}"
    table, ratios = [], []
    for rows in ROWS:
        times = interleaved({name: stepper(layer, rows, device) for name, layer in layers.items()}, rounds=15)
        found = (
            times["py"] / times[first], times["eager"] / times["default"], times["compile"] / times["default"],
        )  # fmt: skip
        ratios.append(found)
        table.append([str(rows), *(f"{times[name] * 1e3:.2f}" for name in layers), *(f"{one:.2f}" for one in found)])
        keep(topic, title, records(columns, table))  # an interrupted run still has results
    means = [f"{statistics.geometric_mean(column):.2f}" for column in zip(*ratios, strict=True)]
    table.append(["geometric mean", *[""] * len(layers), *means])
    show(topic, title, columns, table)


if __name__ == "__main__":
    main()
