"""Probes every toolchain."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ninja

from .. import environment
from .amdgpu import probe_amdgpu
from .cxx import probe_cxx
from .hiprtc import probe_hiprtc
from .nvcc import probe_nvcc
from .nvrtc import probe_nvrtc
from .probe import Probe
from .sycl import probe_dpcpp, probe_icpx

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PURPOSES", "survey"]

PURPOSES = {
    "ninja": "runs every build",
    "C++": "builds ops for the CPU, and the host side of all others",
    "NVRTC": "compiles this project's CUDA device code, with or without a GPU",
    "amdgcn": "compiles this project's device code for AMD GPUs, with or without a GPU",
    "nvcc": "compiles third parties' .cu sources only",
    "DPC++": "compiles this project's SYCL device code",
    "icpx": "compiles third parties' SYCL sources only",
}


def survey(memory: Path) -> list[Probe[Any]]:
    """Look for every tool of every toolchain, in order of preference; starts no device context and raises nothing.

    A rejected tool needs no fix if another tool of its toolchain was accepted.

    Args:
        memory: the directory that caches the tools' versions.
    """
    path = environment.search_path()
    cxx = probe_cxx(environment.cxx(), path, memory)
    host = next((probe.tool.program for probe in cxx if probe.tool is not None and not probe.tool.is_zig), None)
    groups: list[Sequence[Probe[Any]]] = [
        [_probe_ninja()],
        cxx,
        [probe_nvrtc()],
        [probe_amdgpu(memory), probe_hiprtc()],
        probe_nvcc(environment.cuda_home(), path, memory, host),
        [probe_dpcpp()],
        [probe_icpx(path, memory)],
    ]
    return [probe for group in groups for probe in _without_needless_fixes(group)]


def _without_needless_fixes(probes: Sequence[Probe[Any]]) -> Sequence[Probe[Any]]:
    accepted = any(probe.tool is not None for probe in probes)
    return [replace(probe, fix="") for probe in probes] if accepted else probes


def _probe_ninja() -> Probe[Path]:
    program = Path(ninja.BIN_DIR) / "ninja"
    if not program.is_file():
        return Probe("ninja", "pip's ninja", None, f"{program} does not exist", "pip install --force-reinstall ninja")
    return Probe("ninja", "pip's ninja", program, metadata.version("ninja"))
