"""One AdamW step: CPUAdam, torch.optim.AdamW(fused=True) and DeepSpeedCPUAdam, and the machine's streaming limit.

Bytes moved: 28 per parameter (parameter, gradient and two moments read; parameter and two moments written), all float32.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from harness import interleaved, show

from anyaccel.op_builder import CPUOpBuilder
from anyaccel.ops import CPUAdam

BYTES_A_PARAMETER = 28
WIDTH, LAYERS, VOCABULARY, CONTEXT = 768, 12, 50257, 1024


def gpt2_small() -> list[tuple[int, ...]]:
    """Return the shapes of GPT-2 small's 148 parameters."""
    w = WIDTH
    block = [(w,), (w,), (w, 3 * w), (3 * w,), (w, w), (w,), (w,), (w,), (w, 4 * w), (4 * w,), (4 * w, w), (w,)]
    shapes: list[tuple[int, ...]] = [(VOCABULARY, w), (CONTEXT, w), *block * LAYERS, (w,), (w,)]
    return shapes


CASES: dict[str, tuple[list[tuple[int, ...]], int, str]] = {
    "one tensor of 10 M": ([(10_000_000,)], 25, "1.0"),
    "GPT-2 small, 148 tensors": (gpt2_small(), 9, "1.2"),
    "1000 tensors of 1000": ([(1000,)] * 1000, 101, "3"),
}


class TriadBuilder(CPUOpBuilder):
    """Builds the streaming limit's kernel."""

    NAME = "triad"
    STABLE_ABI = True
    SOURCES = (str(Path(__file__).with_name("triad.cpp")),)

    def functions(self) -> Any:
        return torch.ops.anyaccel_benchmarks


def optimizers(shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    """Return each candidate, with its own parameters and gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from deepspeed.ops.adam import DeepSpeedCPUAdam

    makers = {
        "ours": lambda params: CPUAdam(params, lr=1e-3),
        "torch": lambda params: torch.optim.AdamW(params, lr=1e-3, fused=True),
        "deepspeed": lambda params: DeepSpeedCPUAdam(params, lr=1e-3, weight_decay=1e-2),
    }
    made = {}
    for name, make in makers.items():
        params = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        for param in params:
            param.grad = torch.randn_like(param)
        made[name] = make(params)
    return made


def main() -> None:
    triad = TriadBuilder().load().triad
    rows = []
    for case, (shapes, rounds, target) in CASES.items():
        count = sum(torch.Size(shape).numel() for shape in shapes)
        candidates = {name: optimizer.step for name, optimizer in optimizers(shapes).items()}
        arrays = [torch.randn(count) for _ in range(4)]
        times = interleaved({**candidates, "triad": lambda arrays=arrays: triad(*arrays)}, rounds)
        ours = times["ours"]
        rows.append(
            [
                case,
                *(f"{times[name] * 1e3:.2f}" for name in ("ours", "torch", "deepspeed", "triad")),
                f"{times['torch'] / ours:.2f}",
                f"{times['deepspeed'] / ours:.2f}",
                target,
                f"{BYTES_A_PARAMETER * count / ours / 1e9:.1f}",
                f"{times['triad'] / ours:.0%}",
            ]
        )
    columns = ["parameters", "ours ms", "torch fused ms", "deepspeed ms", "triad ms"]
    columns += ["torch / ours", "deepspeed / ours", "target", "ours GB/s", "of the limit"]
    show("adam", "AdamW step in float32, medians", columns, rows)


if __name__ == "__main__":
    main()
