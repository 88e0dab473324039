"""A name for a build's result that changes exactly when the result would: content, never time stamps."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["fingerprint", "host_isa", "included_files"]

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


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
    """Return the sources and every header that they include with quotes, directly or not, in a stable order.

    Headers that are not found beside the includer or in ``include_dirs`` belong to the system or to torch, and are covered
    by the toolchain's and the ABI's versions.
    """
    pending = list(sources)
    seen: dict[Path, None] = {}
    while pending:
        file = pending.pop(0).resolve()
        if file in seen:
            continue
        seen[file] = None
        for name in _INCLUDE.findall(file.read_bytes()):
            candidates = (folder / name.decode() for folder in (file.parent, *include_dirs))
            pending += [found for found in candidates if found.is_file()][:1]
    return list(seen)


@cache
def host_isa() -> str:
    """Return the instruction set of this machine's CPU: its architecture, and a digest of its feature flags."""
    flags = ""
    try:
        with Path("/proc/cpuinfo").open() as lines:
            flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = platform.processor()
    features = " ".join(sorted(flags.partition(":")[2].split())) or flags
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"
