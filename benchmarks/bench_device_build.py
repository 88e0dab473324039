"""An op's CUDA code, compiled by NVRTC with an empty cache, against nvcc on a smaller source with torch's headers.

Neither needs a GPU; without nvcc, the peer is left out.
"""

from __future__ import annotations

import statistics
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path

import torch
from harness import show

from anyaccel.op_builder.cpu import RMSNormBuilder
from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.build import ensure_built
from anyaccel.op_builder.engine.cache import Cache
from anyaccel.op_builder.engine.toolchains.nvcc import probe_nvcc

TARGET, ROUNDS = "sm_90", 3


def ours(folder: Path) -> float:
    """Return the seconds for compiling every kernel of the op."""
    started = time.perf_counter()
    ensure_built(RMSNormBuilder().device_code_recipe(TARGET), Cache(folder / "cache"))
    return time.perf_counter() - started


def by_nvcc(nvcc: Path, folder: Path) -> float:
    """Return the seconds for compiling the peer, which has three kernels, with torch's headers."""
    include = Path(torch.__file__).parent / "include"
    places = [include, include / "torch" / "csrc" / "api" / "include", Path(sysconfig.get_path("include"))]
    flags = ["-O3", "-std=c++20", "--expt-relaxed-constexpr", "-Xcompiler=-fPIC", "-DTORCH_EXTENSION_NAME=peer"]
    source = Path(__file__).with_name("rms_norm_extension.cu")
    command = [nvcc, *flags, f"-arch={TARGET}", *(f"-isystem={place}" for place in places), "-c", source]
    started = time.perf_counter()
    subprocess.run([*command, "-o", folder / "peer.o"], check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        probes = probe_nvcc(environment.cuda_home(), environment.search_path(), folder, None)
        toolkit = next((probe.tool for probe in probes if probe.tool is not None), None)
        mine: list[float] = []
        theirs: list[float] = []
        for number in range(ROUNDS):
            place = folder / str(number)
            place.mkdir()
            mine.append(ours(place))
            if toolkit is not None:
                theirs.append(by_nvcc(toolkit.nvcc, place))
        peer = statistics.median(theirs) if theirs else 0.0
        ratio = f"1/{peer / statistics.median(mine):.0f}" if theirs else "no nvcc"
        rows = [
            [
                f"rms_norm, {len(RMSNormBuilder.KERNELS)} kernels, {TARGET}",
                f"{statistics.median(mine):.2f}",
                f"{peer:.1f}",
                ratio,
                "1/10",
            ]
        ]
        show(
            "device_build",
            "CUDA code of one op, empty cache, medians",
            ["what", "NVRTC s", "nvcc s", "ratio", "target"],
            rows,
        )


if __name__ == "__main__":
    main()
