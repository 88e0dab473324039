"""A dense layer, forward and backward, in each mode that runs here, against eager torch and torch.compile."""

from __future__ import annotations

import statistics

import torch
from harness import interleaved, keep_memory, show

from anyaccel.ops import Dense

FEATURES = 1024
ROWS = (64, 256, 1024, 4096)


class Eager(torch.nn.Linear):
    """torch's own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(super().forward(x))


def stepper(layer: torch.nn.Module, rows: int) -> object:
    x = torch.randn(rows, FEATURES, requires_grad=True)
    grad = torch.randn(rows, FEATURES)

    def step() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x).backward(grad)

    return step


def main() -> None:
    keep_memory()
    compiled = Eager(FEATURES, FEATURES)
    compiled.compile()
    layers = {
        "default": Dense(FEATURES, FEATURES), "cpp": Dense(FEATURES, FEATURES, mode="cpp"),
        "py": Dense(FEATURES, FEATURES, mode="py"), "eager": Eager(FEATURES, FEATURES), "compile": compiled,
    }  # fmt: skip
    columns = ["rows", *(f"{name} ms" for name in layers), "py / cpp", "eager / default", "compile / default"]
    table, ratios = [], []
    for rows in ROWS:
        times = interleaved({name: stepper(layer, rows) for name, layer in layers.items()}, rounds=15)
        found = (
            times["py"] / times["cpp"], times["eager"] / times["default"], times["compile"] / times["default"],
        )  # fmt: skip
        ratios.append(found)
        table.append([str(rows), *(f"{times[name] * 1e3:.2f}" for name in layers), *(f"{one:.2f}" for one in found)])
    means = [f"{statistics.geometric_mean(column):.2f}" for column in zip(*ratios, strict=True)]
    table.append(["geometric mean", *[""] * len(layers), *means])
    show("dense", f"Dense {FEATURES} x {FEATURES}, float32, forward and backward, CPU", columns, table)


if __name__ == "__main__":
    main()
