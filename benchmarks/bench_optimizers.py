"""One step of each optimizer over GPT-2 small's 148 tensors, against torch's fused or foreach version and deepspeed's.

With ``--device cuda`` there are two times: of a step on the device, by replays of a graph, as a program that does not wait sees
it; and from the call to the end of the step by the host's clock. The share of the limit is the first one's.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import warnings
from typing import TYPE_CHECKING, Any

import torch
from bench_adam import gpt2_small
from bench_bandwidth import copy_limit
from device_clock import device_times
from harness import interleaved, keep, keep_memory, records, show, streaming_limit

from anyaccel import ops

if TYPE_CHECKING:
    from collections.abc import Callable


def _deepspeed(name: str) -> Callable[..., Any]:
    """Return a function that makes one of deepspeed's optimizers, importing it on the first call."""

    def make(params: list[torch.nn.Parameter]) -> Any:
        module, cls = name.split(".")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(importlib.import_module(f"deepspeed.ops.{module}"), cls)(params)

    return make


CASES: dict[str, tuple[Callable[..., Any], dict[str, Callable[..., Any]], int]] = {
    "FusedAdam": (ops.FusedAdam, {"torch fused": lambda p: torch.optim.AdamW(p, fused=True)}, 28),
    "FusedAdam, foreach": (ops.FusedAdam, {"torch foreach": lambda p: torch.optim.AdamW(p, foreach=True)}, 28),
    "FusedSGD": (
        lambda p: ops.FusedSGD(p, momentum=0.9),
        {
            "torch fused": lambda p: torch.optim.SGD(p, momentum=0.9, fused=True),
            "torch foreach": lambda p: torch.optim.SGD(p, momentum=0.9, foreach=True),
        },
        20,
    ),
    "CPUAdagrad": (
        ops.CPUAdagrad,
        {
            "torch fused": lambda p: torch.optim.Adagrad(p, fused=True),
            "torch foreach": lambda p: torch.optim.Adagrad(p, foreach=True),
            "deepspeed": _deepspeed("adagrad.DeepSpeedCPUAdagrad"),
        },
        20,
    ),
    "CPULion": (ops.CPULion, {"deepspeed": _deepspeed("lion.DeepSpeedCPULion")}, 20),
    "FusedLamb": (ops.FusedLamb, {}, 44),
    "clip_grad_norm_": (
        lambda p: _Clipping(p, ops.clip_grad_norm_),
        {"torch foreach": lambda p: _Clipping(p, torch.nn.utils.clip_grad_norm_)},
        12,
    ),
}
"""Ours, its peers, and the minimum number of bytes moved per parameter."""
FOR_CUDA = {"FusedAdam", "FusedAdam, foreach", "FusedSGD", "FusedLamb", "clip_grad_norm_"}


class _Clipping:
    """Clipping, with an optimizer's interface."""

    def __init__(self, params: list[torch.nn.Parameter], clip: Callable[..., Any]) -> None:
        self._params, self._clip = params, clip

    def step(self) -> None:
        self._clip(self._params, 1.0)


def optimizer_of(make: Callable[..., Any], device: str, *, capturable: bool = False) -> Any:
    """Return an optimizer, with its own parameters and gradients."""
    params = [torch.nn.Parameter(torch.randn(shape, device=device)) for shape in gpt2_small()]
    for param in params:
        param.grad = torch.randn_like(param)
    optimizer = make(params)
    for group in getattr(optimizer, "param_groups", ()):
        if "capturable" in group:
            group["capturable"] = capturable
    return optimizer


def stepper(make: Callable[..., Any], device: str) -> Callable[[], object]:
    """Return a step, with its own parameters and gradients, that ends when the device has taken it."""
    optimizer = optimizer_of(make, device)

    def run() -> None:
        optimizer.step()
        if device != "cpu":
            torch.get_device_module(device).synchronize()

    return run


def host_times(makers: dict[str, Callable[..., Any]], device: str, limit: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of a step of each, by the host's clock."""
    steps = {name: stepper(make, device) for name, make in makers.items()}
    return interleaved({**steps, "limit": limit}, rounds=15)


def times_on(makers: dict[str, Callable[..., Any]], device: str, limit: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of a step of each on a device."""
    steps = {name: optimizer_of(make, device, capturable=True).step for name, make in makers.items()}
    return device_times({**steps, "limit": limit}, device)


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    is_host = device == "cpu"
    limit = streaming_limit(device) if is_host else copy_limit(device)
    count = sum(torch.Size(shape).numel() for shape in gpt2_small())
    columns = ["optimizer", "ours ms", "peer", "peer ms", "peer / ours", "MB", "GB/s", "of the limit"]
    columns += [] if is_host else ["ours, by the host ms", "peer, by the host ms"]
    digits = 1 if is_host else 3
    title = f"A step over GPT-2 small's 148 tensors in float32 on {device}, medians"
    topic = "optimizers" if is_host else f"optimizers_{device}"
    rows, foreach = [], []
    for name, (ours, peers, bytes_a_parameter) in CASES.items():
        if not is_host and name not in FOR_CUDA:
            continue
        makers = {"ours": ours, **peers}
        times = (host_times if is_host else times_on)(makers, device, limit.run)
        by_host = times if is_host else host_times(makers, device, lambda: None)
        rate = bytes_a_parameter * count / times["ours"] / 1e9
        for peer in peers or {"": None}:
            against = (
                [peer, f"{times[peer] * 1e3:.{digits}f}", f"{times[peer] / times['ours']:.2f}"]
                if peer
                else ["none", "", ""]
            )
            host_columns = [f"{by_host[one] * 1e3:.3f}" if one else "" for one in ("ours", peer)]
            rows.append(
                [
                    name,
                    f"{times['ours'] * 1e3:.{digits}f}",
                    *against,
                    f"{bytes_a_parameter * count / 1e6:.0f}",
                    f"{rate:.1f}",
                    f"{rate / limit.gb_per_s(times['limit']):.0%}",
                    *([] if is_host else host_columns),
                ]
            )
            if "foreach" in peer and name != "clip_grad_norm_":
                foreach.append(times[peer] / times["ours"])
        keep(topic, title, records(columns, rows))  # an interrupted run still has results
    mean = f"{statistics.geometric_mean(foreach):.2f}" if foreach else ""
    rows.append(["geometric mean", "", "torch foreach", "", mean, *[""] * (len(columns) - 5)])
    show(topic, title, columns, rows)


if __name__ == "__main__":
    main()
