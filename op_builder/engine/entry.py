"""A finished build in its folder: the binary, and the metadata that say what it is and what it must still be."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["METADATA", "UNREADABLE", "Entry", "read_entry", "sha256_of", "write_entry"]

METADATA = "metadata.json"
UNREADABLE = (OSError, ValueError, KeyError, TypeError)
"""What reading a damaged entry raises."""


@dataclass(frozen=True)
class Entry:
    """A finished build.

    Attributes:
        op: the op's name.
        binary: the shared library.
        sha256: its digest when it was published.
        facts: what its fingerprint was made of, and the digests of further files that decided it.
    """

    op: str
    binary: Path
    sha256: str
    facts: dict[str, Any]

    def is_intact(self) -> bool:
        """Return whether the binary is what was published."""
        return sha256_of(self.binary) == self.sha256

    def changed_header(self) -> str:
        """Return a header that the compiler read, that the fingerprint does not cover, and that has changed; else nothing."""
        headers: dict[str, str] = self.facts.get("headers", {})
        return next((header for header, digest in headers.items() if sha256_of(Path(header)) != digest), "")


def read_entry(folder: Path) -> Entry:
    """Return the entry in a folder.

    Raises:
        OSError, ValueError, KeyError, TypeError: (``UNREADABLE``) when it has none that can be read.
    """
    content = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    return Entry(content["op"], folder / content["binary"], content["sha256"], content["facts"])


def write_entry(folder: Path, op: str, built: Path, facts: dict[str, Any]) -> Entry:
    """Move a built binary into a folder, its metadata last, and return the entry.

    The binary is named by its content: a process may hold an earlier one, and loads the same path only once.
    """
    digest = sha256_of(built)
    name = f"{built.stem}-{digest[:8]}{built.suffix}"
    metadata = built.with_name(METADATA)
    described = {"op": op, "binary": name, "sha256": digest, "facts": facts}
    metadata.write_text(json.dumps(described, indent=1, sort_keys=True), encoding="utf-8")
    (folder / METADATA).unlink(missing_ok=True)
    os.replace(built, folder / name)
    os.replace(metadata, folder / METADATA)
    for earlier in folder.glob(f"{built.stem}-*{built.suffix}"):
        if earlier.name != name:
            with contextlib.suppress(OSError):
                earlier.unlink()
    return Entry(op, folder / name, digest, facts)


def sha256_of(file: Path) -> str:
    """Return a file's digest; empty when it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
