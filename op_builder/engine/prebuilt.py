"""What a wheel brings along, built ahead of time: ``_C/<op>-<target>/`` with the binary and its metadata."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from .entry import UNREADABLE, read_entry
from .targets import host_cpu_targets

if TYPE_CHECKING:
    from collections.abc import Callable

    from .entry import Entry
    from .trace import Trace

__all__ = ["PREBUILT", "find_device_code", "find_library", "folder_for"]

PREBUILT = Path(__file__).resolve().parents[2] / "_C"
"""Beside this package in a wheel that was built with ``BUILD_EXT=1``; a checkout has none."""


def folder_for(root: Path, op: str, target: str) -> Path:
    """Return the folder of a prebuilt binary."""
    return root / f"{op}-{target}"


def find_library(op: str, key_for: Callable[[str], str], trace: Trace) -> Path | None:
    """Return the best prebuilt library of an op that fits this machine and these sources, or None.

    Args:
        op: the op's name.
        key_for: returns the key of the op's recipe for a target.
        trace: says of every library that does not fit why not.
    """
    if not PREBUILT.is_dir():
        trace.reject("prebuilt", "this installation brings none", logging.DEBUG)
        return None
    brought = sorted(folder.name for folder in PREBUILT.glob(f"{op}-*"))
    for target in host_cpu_targets():
        folder = folder_for(PREBUILT, op, target)
        if folder.name not in brought:
            continue
        problem = _problem(folder, key_for(target))
        if not problem:
            trace.accept(f"prebuilt {target}", str(folder))
            return read_entry(folder).binary
        trace.reject(f"prebuilt {target}", f"{problem}; the op is built here instead", logging.WARNING)
    if not trace.decisions:
        brings = f"{', '.join(brought)}, and none of them is for this CPU" if brought else "other ops, but not this one"
        trace.reject("prebuilt", f"this installation brings {brings}")
    return None


def find_device_code(
    op: str, target: str, key: Callable[[], str], refusal: Callable[[str], str], trace: Trace
) -> Entry | None:
    """Return the prebuilt device code of an op for a target, or None; the trace says why not.

    Args:
        op: the op's name.
        target: such as ``sm_90``.
        key: returns the key of the op's recipe for the target.
        refusal: returns why the driver refuses the code of a compiler, such as ``NVRTC 13.0.88``; empty when it takes it.
        trace: says why the code does not fit.
    """
    folder = folder_for(PREBUILT, op, target)
    if not folder.is_dir():
        trace.reject(f"prebuilt {target}", "this installation brings none", logging.DEBUG)
        return None
    problem = _problem(folder, key()) or refusal(read_entry(folder).facts["compiler_version"])
    if problem:
        trace.reject(f"prebuilt {target}", f"{problem}; it is compiled here instead", logging.WARNING)
        return None
    trace.accept(f"prebuilt {target}", str(folder))
    return read_entry(folder)


def _problem(folder: Path, key: str) -> str:
    try:
        entry = read_entry(folder)
    except UNREADABLE as error:
        return f"its metadata cannot be read: {error}"
    if entry.facts.get("key") != key:
        return "its sources, flags or ABI are not those of this installation"
    return "" if entry.is_intact() else "its content differs from its metadata"
