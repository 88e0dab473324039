"""Loads the library of this folder that is the best for this machine's CPU."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import torch

__all__ = ["load"]


def load(folder: Path) -> str:
    """Load the op's library, and return the namespace of its torch ops.

    Args:
        folder: has ``library.json``: the namespace, for each CPU level the flags that it needs, best first, and what ``_gpu``
            takes.

    Raises:
        ImportError: when the folder has no library for this CPU.
    """
    described = json.loads((folder / "library.json").read_text(encoding="utf-8"))
    namespace: str = described["namespace"]
    flags = _cpu_flags()
    for level, needed in described["levels"].items():
        if flags.issuperset(needed):
            library = folder / f"{namespace}-{level}.so"
            torch.ops.load_library(str(library))
            if "gpu" in described:
                gpu = importlib.import_module("._gpu", __package__)
                gpu.register(folder, library, **described["gpu"])
            return namespace
    msg = (
        f"loading {folder} failed: it has libraries for CPUs of {', '.join(described['levels'])}; this CPU is none of them. "
        f"Fix: build it for this machine: anyaccel build --hub, without --target."
    )
    raise ImportError(msg)


def _cpu_flags() -> set[str]:
    """Return the CPU's flags; where Linux does not list them, none, so that the lowest level is used."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = (line for line in lines if line.startswith(("flags", "Features")))  # x86-64 and Arm
    return set(next(found, "").partition(":")[2].split())
