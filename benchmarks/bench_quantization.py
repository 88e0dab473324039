"""Groupwise quantization and its inverse against the machine's streaming limit; torch has no peer of the same layout."""

from __future__ import annotations

import argparse

import torch
from bench_bandwidth import copy_limit
from device_clock import device_times
from harness import interleaved, keep, keep_memory, records, show, streaming_limit

from anyaccel import ops

ELEMENTS, GROUP = 1 << 25, 1024


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    limit = streaming_limit(device) if device == "cpu" else copy_limit(device)
    columns = ["kind", "quantize ms", "dequantize ms", "MB", "quantize GB/s", "dequantize GB/s", "both, of the limit"]
    title = f"{ELEMENTS} elements in groups of {GROUP} on {device}, medians"
    topic = "quantization" if device == "cpu" else f"quantization_{device}"
    rows: list[list[str]] = []
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(ELEMENTS // GROUP, GROUP, device=device).to(dtype)
        for bits, name in ((8, "int8"), (4, "int4"), (16, "fp8 e4m3")):
            groups = x.shape[0]
            if bits == 16:
                q, params = ops.quantize_float8(x, groups)
                both = {
                    "quantize": lambda x=x, g=groups: ops.quantize_float8(x, g),
                    "dequantize": lambda q=q, p=params, t=dtype: ops.dequantize_float8(q, p, dtype=t),
                }
            else:
                q, params = ops.quantize(x, groups, bits)
                both = {
                    "quantize": lambda x=x, g=groups, b=bits: ops.quantize(x, g, b),
                    "dequantize": lambda q=q, p=params, b=bits, t=dtype: ops.dequantize(q, p, b, dtype=t),
                }
            candidates = {**both, "limit": limit.run}
            times = (
                interleaved(candidates, rounds=25) if device == "cpu" else device_times(candidates, device, rounds=25)
            )
            moved = ELEMENTS * (x.element_size() + min(bits, 8) / 8)
            total = sum(times[key] for key in both)
            rates = [moved / times[key] / 1e9 for key in both]
            figures = [f"{times[key] * 1e3:.{1 if device == 'cpu' else 3}f}" for key in both]
            rows.append(
                [f"{str(dtype).removeprefix('torch.')} to {name}", *figures, f"{2 * moved / 1e6:.0f}",
                 *(f"{rate:.1f}" for rate in rates), f"{2 * moved / total / 1e9 / limit.gb_per_s(times['limit']):.0%}"]
            )  # fmt: skip
            keep(topic, title, records(columns, rows))  # an interrupted run still has results
    show(topic, title, columns, rows)


if __name__ == "__main__":
    main()
