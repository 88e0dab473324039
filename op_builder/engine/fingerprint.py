"""Names a build after its content, never after time stamps: the name changes exactly when the result would."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from .scan import directives, scan

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

__all__ = ["cpu_flags", "fingerprint", "host_isa"]


_OWN_NAMES = rb"__(BASE_)?FILE__|__builtin_FILE|source_location"


def fingerprint(
    sources: Sequence[Path],
    include_dirs: Sequence[Path | str],
    facts: dict[str, Any],
    further: Sequence[str] = (),
    known_macros: Collection[str] = (),
    *,
    names_places: bool = False,
) -> str:
    """Return the fingerprint of a build.

    Args:
        sources: the source files.
        include_dirs: this project's own include directories; the content of their headers counts.
        facts: the other facts that decide the result (flags, toolchain, target, ABI), as JSON values.
        further: further headers that are included, such as by a flag.
        known_macros: macros in ``#include MACRO`` of the sources whose header is one of these, wherever the sources are.
        names_places: whether the result has the paths of files that name themselves, by ``__FILE__``.

    Returns:
        32 hexadecimal digits.

    Raises:
        FileNotFoundError: when a source does not exist.
    """
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    names = [os.path.basename(source) for source in sources]  # a file may be a source, or only included by one
    digest.update(os.fsencode("\0".join([str(len(names)), *names])))
    resolved = {os.path.realpath(source) for source in sources} if known_macros else ()
    numbers: dict[str, int] = {}
    includes = []
    for file in scan(sources, include_dirs, further):
        numbers[file.path] = len(numbers)
        includes.append(file.includes)
        is_placed = file.depends_on_place
        if is_placed and file.path in resolved:
            is_placed = any(one.is_placed and one.macro not in known_macros for one in directives(file.content))
        if names_places and (
            b"_FILE" in file.content or b"source_location" in file.content
        ):  # an expression takes longer
            is_placed |= re.search(_OWN_NAMES, file.content) is not None
        place = file.path if is_placed else os.path.basename(file.path)
        digest.update(os.fsencode(f"\0{place}\0{len(file.content)}\0"))
        digest.update(file.content)
    # Which file each directive means: files of the same names and contents can include each other in several ways.
    digest.update(str([numbers.get(path, -1) for each in includes for path in each]).encode())
    return digest.hexdigest()[:32]


_FLAGS = re.compile(rb"^(?:flags|Features)\s*:(.*)\n", re.MULTILINE)


@cache
def cpu_flags() -> frozenset[str]:
    """Return the features of this machine's CPU by the kernel's names, such as ``avx2``; empty when unknown."""
    return frozenset(_told_flags().decode().split())


@cache
def _told_flags() -> bytes:
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:  # read the first CPU only: each takes time
            content = b""
            while not _FLAGS.search(content) and (part := file.read(4096)):
                content += part
    except OSError:
        content = b""
    found = _FLAGS.search(content)
    return found[1] if found else b""


@cache
def host_isa() -> str:
    """Return the instruction set of this machine's CPU: its architecture, and a digest of its feature flags."""
    features = _told_flags() or platform.processor().encode()
    return f"{os.uname().machine}-{hashlib.sha256(features).hexdigest()[:12]}"
