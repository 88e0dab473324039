"""A name for a build's result that changes exactly when the result would: content, never time stamps."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["cpu_flags", "fingerprint", "host_isa", "included_files"]

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


def fingerprint(sources: Sequence[Path], include_dirs: Sequence[Path], facts: dict[str, Any]) -> str:
    """Return the fingerprint of a build.

    Args:
        sources: the source files.
        include_dirs: this project's own include directories; headers found there count with their content.
        facts: everything else that decides the result (flags, toolchain, target, ABI), as JSON values.

    Returns:
        32 hexadecimal digits.

    Raises:
        FileNotFoundError: when a source does not exist.
    """
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for file in included_files(sources, include_dirs):
        content = file.read_bytes()
        digest.update(f"\0{file.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def included_files(sources: Iterable[Path], include_dirs: Sequence[Path]) -> list[Path]:
    """Return the sources and every header that they include, directly or not, in a stable order.

    Headers that are not found in ``include_dirs`` or, where named in quotes, beside the includer, belong to the system or to
    torch, and are covered by the toolchain's and the ABI's versions. A header whose name is a macro is not found here; the
    compiler's own list of what it read is checked besides.
    """
    pending = list(sources)
    seen: dict[Path, None] = {}
    while pending:
        file = pending.pop(0).resolve()
        if file in seen:
            continue
        seen[file] = None
        for quoted, bracketed in _INCLUDE.findall(file.read_bytes()):
            folders = (file.parent, *include_dirs) if quoted else include_dirs
            candidates = (folder / os.fsdecode(quoted or bracketed) for folder in folders)
            pending += [found for found in candidates if found.is_file()][:1]
    return list(seen)


@cache
def cpu_flags() -> frozenset[str]:
    """Return what this machine's CPU can do, in the kernel's words, such as ``avx2``; empty where that is not known."""
    try:
        with Path("/proc/cpuinfo").open() as lines:
            line = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        line = ""
    return frozenset(line.partition(":")[2].split())


@cache
def host_isa() -> str:
    """Return the instruction set of this machine's CPU: its architecture, and a digest of its feature flags."""
    features = " ".join(sorted(cpu_flags())) or platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"
