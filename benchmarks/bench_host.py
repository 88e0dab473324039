"""The host's cost of calls on 64 elements, where the kernel takes almost no time: an op, its backward, an optimizer.

It builds the op ``autograd`` first, as the first load of an op that must be compiled does; ``--python`` measures without it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch
from harness import interleaved, show

from anyaccel import ops
from anyaccel.kernels.functions.eager import DifferentiableOp, RecordedOp
from anyaccel.op_builder.cpu.autograd import AutogradBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

ELEMENTS, TENSORS = 64, 1000
ROUNDS, CALLS = 101, 100
OPTIMIZER_ROUNDS = 31


def backward_of(forward: Callable[[], torch.Tensor]) -> Callable[[], None]:
    """Return a call that also computes the gradients."""
    given = torch.ones(ELEMENTS)
    return lambda: forward().backward(given)


def norms(requires_grad: bool) -> dict[str, Callable[[], torch.Tensor]]:
    """Return calls of our norm, of torch's single-kernel norm, and of torch's same formula, which runs several kernels."""
    x = torch.randn(ELEMENTS).requires_grad_(requires_grad)
    weight, bias = (made(ELEMENTS).requires_grad_(requires_grad) for made in (torch.ones, torch.zeros))
    return {
        "ours": lambda: ops.rms_norm(x, weight),
        "torch": lambda: torch.nn.functional.layer_norm(x, (ELEMENTS,), weight, bias),
        "torch rms_norm": lambda: torch.nn.functional.rms_norm(x, (ELEMENTS,), weight, 1e-6),
    }


def optimizers() -> dict[str, Callable[[], object]]:
    """Return steps over many small tensors."""
    steps: dict[str, Callable[[], object]] = {}
    for name, kind, options in (("ours", ops.FusedAdam, {}), ("torch", torch.optim.AdamW, {"fused": True})):
        parameters = [torch.nn.Parameter(torch.randn(ELEMENTS)) for _ in range(TENSORS)]
        for parameter in parameters:
            parameter.grad = torch.randn(ELEMENTS)
        steps[name] = kind(parameters, lr=1e-4, **options).step
    return steps


def main() -> None:
    if "--python" in sys.argv:
        RecordedOp.__call__ = DifferentiableOp.__call__  # type: ignore[method-assign]
    else:
        AutogradBuilder().build()
    torch.set_num_threads(1)  # no call has work for more threads
    recorded = norms(requires_grad=True)
    backward = {name: backward_of(call) for name, call in recorded.items()}
    measured = [
        ("rms_norm, no gradient", interleaved(norms(requires_grad=False), ROUNDS, CALLS)),
        ("rms_norm, forward with gradient", interleaved(recorded, ROUNDS, CALLS)),
        ("rms_norm, forward and backward", interleaved(backward, ROUNDS, CALLS)),
        (f"FusedAdam, {TENSORS} tensors", interleaved(optimizers(), OPTIMIZER_ROUNDS)),
    ]
    columns = ["call", "ours µs", "torch µs", "torch rms_norm µs", "ours / torch"]
    rows = [
        [
            call,
            *(f"{times[name] * 1e6:.1f}" if name in times else "" for name in ("ours", "torch", "torch rms_norm")),
            f"{times['ours'] / times['torch']:.2f}",
        ]
        for call, times in measured
    ]
    show("host", f"The host's cost of a call on tensors of {ELEMENTS}, medians", columns, rows)


if __name__ == "__main__":
    main()
