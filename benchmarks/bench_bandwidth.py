"""The share of the copy bandwidth that each kernel reaches, forward and with backward, on data larger than any cache.

Bytes are the minimum that a step must move: inputs read once, results written once. With ``--device cuda``, times come from
events and graph replay. The results are written after every row, and drawn if matplotlib is installed, so that an interrupted
run still has results.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

import torch
from bench_kernels import cases
from device_clock import device_times
from harness import RESULTS, Limit, keep, keep_memory, show, streaming_limit, with_earlier
from kernel_peers import PEERS, installed_peers

from anyaccel import get_accelerator

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel_case import Case

COLUMNS = 4096
DTYPES = (torch.bfloat16, torch.float32)
LEAST_BYTES = 64 << 20
CANDIDATES = ("ours", "eager", "compile")
LABELS = ["kernel", "dtype", "shape"]


def rows_of(device: str) -> int:
    """Return the number of rows of bfloat16 for inputs that fit into no cache."""
    cache = 0 if device == "cpu" else getattr(get_accelerator().get_device_properties(), "L2_cache_size", 0)
    return math.ceil(max(LEAST_BYTES, 4 * cache) / (2 * COLUMNS))


def inputs_of(case: Case, rows: int, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return a case's inputs in a dtype; indices and masks do not change."""
    return [
        tensor.detach().to(dtype).requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor
        for tensor in case.inputs(rows, COLUMNS, device)
    ]


def both_ways(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> Callable[[], object]:
    """Return forward and backward as one call."""
    leaves = [tensor for tensor in inputs if tensor.requires_grad]
    grad = torch.randn_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), leaves, grad)


def copy_limit(device: str) -> Limit:
    """Return the copy that kernels are compared with; on a device, by a kernel.

    ``copy_`` in a graph is a copy by another engine of the device, which reaches two thirds of a kernel's on an H200.
    """
    if device == "cpu":
        return streaming_limit(device)
    source = torch.empty(1 << 28, dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    return Limit(lambda: torch.add(source, 1, out=target), 2 * source.nbytes)


def agreeing(
    peers: dict[str, Callable[..., torch.Tensor]], case: Case, inputs: list[torch.Tensor]
) -> dict[str, Callable[..., torch.Tensor]]:
    """Return the peers that run here and agree with torch."""
    found = {}
    expected = case.eager(*inputs).float()
    for name, call in peers.items():
        try:
            torch.testing.assert_close(call(*inputs).float(), expected, rtol=0.05, atol=0.05)
            found[name] = call
        except Exception as error:  # noqa: BLE001 - another project's failure must not stop the rest
            print(f"{name} is left out: {str(error).splitlines()[0]}")
    return found


def measured(kernel: str, case: Case, rows: int, device: str, dtype: torch.dtype) -> dict[str, str]:
    """Return a case's columns for a dtype (times and share of the copy bandwidth), or none if the case does not support it."""
    inputs = inputs_of(case, rows, device, dtype)
    calls = {"ours": case.ours, "eager": case.eager, "compile": torch.compile(case.eager)}
    limit = copy_limit(device)
    candidates: dict[str, Callable[[], object]] = {"limit": limit.run}
    with torch.no_grad():
        calls |= agreeing(installed_peers(kernel), case, inputs) if device != "cpu" else {}
        forward = device_times({name: _bound(call, inputs) for name, call in calls.items()}, device)
    if "ours" not in forward:
        return {}
    for name, call in calls.items():
        if name in forward:
            candidates[name] = both_ways(call, inputs)
    both = device_times(candidates, device)
    named = CANDIDATES if device == "cpu" else (*CANDIDATES, *PEERS)
    columns = {f"{name} forward ms": _ms(forward, name) for name in named}
    columns |= {f"{name} ms": _ms(both, name) for name in named}
    rate = case.moved * rows * COLUMNS * dtype.itemsize / both["ours"] / 1e9
    return {**columns, "GB/s": f"{rate:.0f}", "of the limit": f"{rate / limit.gb_per_s(both['limit']):.0%}"}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _bound(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> Callable[[], object]:
    return lambda: function(*inputs)


def _ms(times: dict[str, float], name: str) -> str:
    return f"{times[name] * 1e3:.3f}" if name in times else "-"


def draw_if_possible(results: Path) -> None:
    """Draw the results so far, if matplotlib is installed."""
    try:
        from plot_bandwidth import draw
    except ModuleNotFoundError as error:
        print(f"no plot is drawn: {error}")
    else:
        draw(results)


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--only", nargs="+", metavar="KERNEL", help="some kernels; the others' earlier results are kept"
    )
    parser.add_argument("--dtype", nargs="+", choices=[_name(dtype) for dtype in DTYPES], help="some dtypes, as above")
    options = parser.parse_args()
    device = options.device
    chosen = {name: case for name, case in cases().items() if name in (options.only or cases())}
    if unknown := set(options.only or ()) - set(chosen):
        parser.error(f"--only got {', '.join(sorted(unknown))}; expected {', '.join(cases())}")
    rows = rows_of(device)
    title = f"Forward, and forward and backward, on {device}, inputs of {rows} x {COLUMNS}, medians"
    topic = "bandwidth" if device == "cpu" else f"bandwidth_{device}"
    found: list[dict[str, str]] = []
    for dtype in (dtype for dtype in DTYPES if _name(dtype) in (options.dtype or _name(dtype))):
        for name, case in chosen.items():
            torch._dynamo.reset()
            label = dict(zip(LABELS, (name, _name(dtype), f"{rows} x {COLUMNS}"), strict=True))
            columns = measured(name, case, rows, device, dtype)
            found += [{**label, **columns}] if columns else []
            keep(topic, title, with_earlier(topic, found, len(LABELS)))
            draw_if_possible(RESULTS / f"{topic}.json")
    show(topic, title, list(found[0]), [list(row.values()) for row in found], identity=len(LABELS))


if __name__ == "__main__":
    main()
