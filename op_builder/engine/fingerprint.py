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
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["cpu_flags", "fingerprint", "host_isa", "included_files"]

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


_PLACED = re.compile(rb"^[ \t]*#[ \t]*include(_next\b|[ \t]+[A-Za-z_])", re.MULTILINE)
"""What is included by a macro's name, or after the file's own folder, depends on where the file is."""


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
    for file, content in _read_files(sources, include_dirs):
        place = file if _PLACED.search(content) else os.path.basename(file)
        digest.update(os.fsencode(f"\0{place}\0{len(content)}\0"))
        digest.update(content)
    return digest.hexdigest()[:32]


def included_files(sources: Iterable[Path], include_dirs: Sequence[Path]) -> list[Path]:
    """Return the sources and every header that they include, directly or not, in a stable order.

    Headers that are not found in ``include_dirs`` or, where named in quotes, beside the includer, belong to the system or to
    torch, and are covered by the toolchain's and the ABI's versions. A header whose name is a macro is not found here; the
    compiler's own list of what it read is checked besides.
    """
    return [Path(name) for name, _ in _read_files(sources, include_dirs)]


def _read_files(sources: Iterable[Path], include_dirs: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield each file's path and content. Paths are strings: this is most of what a warm load does."""
    pending = [os.path.realpath(source) for source in sources]
    folders = [os.path.realpath(folder) for folder in include_dirs]
    seen = set()
    entries: dict[str, set[str]] = {}

    def may_hold(folder: str, name: str) -> bool:
        """Return whether a folder has an entry that a header's name begins with; for most of the system's it has none."""
        first = name.partition("/")[0]
        if folder not in entries:
            entries[folder] = {"", ".", "..", *(os.listdir(folder) if os.path.isdir(folder) else ())}
        return first in entries[folder]

    for file in pending:  # which grows while it is gone through
        if file in seen:
            continue
        seen.add(file)
        with open(file, "rb") as opened:
            content = opened.read()
        yield file, content
        for quoted, bracketed in _INCLUDE.findall(content):
            places = [os.path.dirname(file), *folders] if quoted else folders
            name = os.fsdecode(quoted or bracketed)
            found = (os.path.normpath(f"{place}/{name}") for place in places if may_hold(place, name))
            pending += [candidate for candidate in found if os.path.isfile(candidate)][:1]


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
