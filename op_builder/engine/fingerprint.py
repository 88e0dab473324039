"""A name for a build's result that changes exactly when the result would: content, never time stamps."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .scan import scan

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["cpu_flags", "fingerprint", "host_isa"]


def fingerprint(
    sources: Sequence[Path], include_dirs: Sequence[Path | str], facts: dict[str, Any], further: Sequence[str] = ()
) -> str:
    """Return the fingerprint of a build.

    Args:
        sources: the source files.
        include_dirs: this project's own include directories; headers found there count with their content.
        facts: everything else that decides the result (flags, toolchain, target, ABI), as JSON values.
        further: headers that are included besides, such as by a flag.

    Returns:
        32 hexadecimal digits.

    Raises:
        FileNotFoundError: when a source does not exist.
    """
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for file in scan(sources, include_dirs, further):
        place = file.path if file.depends_on_place else os.path.basename(file.path)
        digest.update(os.fsencode(f"\0{place}\0{len(file.content)}\0"))
        digest.update(file.content)
    return digest.hexdigest()[:32]


@cache
def cpu_flags() -> frozenset[str]:
    """Return what this machine's CPU can do, in the kernel's words, such as ``avx2``; empty where that is not known."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            line = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        line = ""
    return frozenset(line.partition(":")[2].split())


@cache
def host_isa() -> str:
    """Return the instruction set of this machine's CPU: its architecture, and a digest of its feature flags."""
    features = " ".join(sorted(cpu_flags())) or platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"
