"""The prebuilt binaries of a wheel: ``_C/<op>-<target>/`` with the binary and its metadata."""

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
"""Next to this package in a wheel built with ``BUILD_EXT=1``; a checkout has none."""


def folder_for(root: Path, op: str, target: str) -> Path:
    """Return the folder of a prebuilt binary."""
    return root / f"{op}-{target}"


def find_library(op: str, key_for: Callable[[str], str], trace: Trace, *, is_expected: bool = True) -> Path | None:
    """Return the best prebuilt library of an op that fits this machine and these sources, or None.

    Args:
        op: the op's name.
        key_for: returns the key of the op's recipe for a target.
        trace: records why each other library does not fit.
        is_expected: warn about a library that does not fit, because it should.
    """
    level = logging.WARNING if is_expected else logging.INFO
    if not PREBUILT.is_dir():
        trace.reject("prebuilt", "this installation has none", logging.DEBUG)
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
        trace.reject(f"prebuilt {target}", f"{problem}; it is not used", level)
    if not trace.decisions:
        brings = f"{', '.join(brought)}, none of them for this CPU" if brought else "other ops, but not this one"
        trace.reject("prebuilt", f"this installation has {brings}")
    return None


def find_device_code(
    op: str, target: str, key: Callable[[], str], refusal: Callable[[str], str], trace: Trace
) -> Entry | None:
    """Return the prebuilt device code of an op for a target, or None; the trace records why not.

    Args:
        op: the op's name.
        target: the target, such as ``sm_90``.
        key: returns the key of the op's recipe for the target.
        refusal: returns why the driver rejects the code of a compiler, such as ``NVRTC 13.0.88``; empty when it accepts it.
        trace: records why the code does not fit.
    """
    folder = folder_for(PREBUILT, op, target)
    if not folder.is_dir():
        trace.reject(f"prebuilt {target}", "this installation has none", logging.DEBUG)
        return None
    problem = _problem(folder, key()) or refusal(read_entry(folder).facts["compiler_version"])
    if problem:
        trace.reject(f"prebuilt {target}", f"{problem}; compiling it here instead", logging.WARNING)
        return None
    trace.accept(f"prebuilt {target}", str(folder))
    return read_entry(folder)


def _problem(folder: Path, key: str) -> str:
    try:
        entry = read_entry(folder)
    except UNREADABLE as error:
        return f"its metadata cannot be read: {error}"
    if entry.facts.get("key") != key:
        return "its sources, flags or ABI differ from this installation's"
    return "" if entry.is_intact() else "its content differs from its metadata"
