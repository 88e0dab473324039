"""A dense layer, forward and backward, in each mode that runs here, against eager torch and torch.compile."""

from __future__ import annotations

import argparse
import math
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
    layers = {
        "default": Dense(FEATURES, FEATURES, device=device),
        **{mode: Dense(FEATURES, FEATURES, mode=mode, device=device) for mode in modes},
        "eager": Eager(FEATURES, FEATURES, device=device),
        "compile": compiled,
    }
    return {name: layer for name, layer in layers.items() if name == "default" or _runs(name, layer, device)}


def _runs(name: str, layer: torch.nn.Module, device: str) -> bool:
    """Return whether a mode or a peer works on this machine; what does not is left out, and the others are measured."""
    try:
        stepper(layer, ROWS[0], device)()
    except Exception as error:  # noqa: BLE001 - of any kind, by a compiler of torch or Triton
        print(f"{name} is left out: {str(error).strip().splitlines()[0]}")
        return False
    return True


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    layers = layers_on(device)
    first = "cpp" if "cpp" in layers else "default"
    columns = ["rows", *(f"{name} ms" for name in layers), f"py / {first}", "eager / default", "compile / default"]
    topic = "dense" if device == "cpu" else f"dense_{device}"
    title = f"Dense {FEATURES} x {FEATURES}, float32, forward and backward, {device}"
    table, ratios = [], []
    for rows in ROWS:
        times = interleaved({name: stepper(layer, rows, device) for name, layer in layers.items()}, rounds=15)
        pairs = (("py", first), ("eager", "default"), ("compile", "default"))
        found = [times[one] / times[other] if one in times else math.nan for one, other in pairs]
        ratios.append(found)
        table.append([str(rows), *(f"{times[name] * 1e3:.2f}" for name in layers), *(f"{one:.2f}" for one in found)])
        keep(topic, title, records(columns, table))  # an interrupted run still has results
    means = [f"{statistics.geometric_mean(column):.2f}" for column in zip(*ratios, strict=True)]
    table.append(["geometric mean", *[""] * len(layers), *means])
    show(topic, title, columns, table)


if __name__ == "__main__":
    main()
