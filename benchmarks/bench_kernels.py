"""The kernels, forward and backward, against eager torch, ``torch.compile`` and the machine's streaming limit.

On the CPU; with ``--device cuda`` on a GPU, where ``torch.compile`` uses Triton. Bytes are the minimum that a step
must move: inputs read once, results written once, forward and backward.
"""

from __future__ import annotations

import argparse
import math
import runpy
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from harness import interleaved, keep_memory, show, streaming_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_case import Case

SHAPES = [(1024, 768), (4096, 1024), (2048, 4096), (512, 16384)]


def cases() -> dict[str, Case]:
    """Return every op's cases."""
    files = sorted((Path(__file__).parent / "kernel_cases").glob("*.py"))
    return {title: case for file in files for title, case in runpy.run_path(str(file))["CASES"].items()}


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
    for name, case in cases().items():
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
