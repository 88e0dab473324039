"""A finished build in its folder: the binary, and metadata that describe it and let readers check it.

Metadata are checked before use: they may be damaged, or written by another version.
"""

from __future__ import annotations

import contextlib
import json
import os
import string
from typing import TYPE_CHECKING, Any, NamedTuple

from .inputs import Inputs, digest_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["METADATA", "UNREADABLE", "Entry", "parse_entry", "read_entry", "text_of", "write_entry"]

METADATA = "metadata.jsonl"
UNREADABLE = (OSError, ValueError, RecursionError)
"""The errors of reading a damaged entry."""

_HEXADECIMAL = frozenset("0123456789abcdef")
_PLAIN = frozenset(string.ascii_letters + string.digits + "_.-")
_TEXTS = ("target", "compiler_version", "key")
_KEYS = {"op", "name", "binary", "sha256", "facts", "inputs"}


class Entry(NamedTuple):
    """A finished build.

    Attributes:
        op: the op's name.
        binary: the shared library.
        sha256: its digest when it was published.
        facts: the facts in its fingerprint.
        inputs: the other files that decided it.
        name: the name it was published under; a copy in a wheel is in a folder of another name.
    """

    op: str
    binary: Path
    sha256: str
    facts: dict[str, Any]
    inputs: Inputs = Inputs()
    name: str = ""

    def is_intact(self) -> bool:
        """Return whether the binary is unchanged since it was published."""
        return digest_of(os.fspath(self.binary)) == self.sha256


def _is_plain_name(name: str) -> bool:
    return 0 < len(name) <= 201 and name[0] not in ".-" and _PLAIN.issuperset(name)


def parse_entry(content: bytes, folder: Path) -> Entry:
    """Return the entry that metadata describe.

    Args:
        content: the content of the metadata file.
        folder: the binary's folder.

    Raises:
        ValueError, RecursionError: (``UNREADABLE``) when the content is not valid metadata.
    """
    described_in, _, missing = content.partition(b"\n")
    _require(b"\\u0000" not in described_in, "it has a NUL")
    described = json.loads(described_in.decode())
    _require(isinstance(described, dict) and set(described) == _KEYS, "it does not have an entry's members")
    op, binary, digest, facts = (described[member] for member in ("op", "binary", "sha256", "facts"))
    _require(isinstance(op, str) and op.isascii() and op.isidentifier(), "'op' is not a name")
    _require(isinstance(described["name"], str), "'name' is not a string")
    _require(isinstance(binary, str) and _is_plain_name(binary), "'binary' is not a file name")
    _require(binary != METADATA, "'binary' names the metadata")
    _require(isinstance(digest, str) and len(digest) == 64 and _HEXADECIMAL.issuperset(digest), "'sha256' is no digest")
    _require(isinstance(facts, dict), "'facts' is not an object")
    _require(all(isinstance(facts.get(name, ""), str) for name in _TEXTS), "a fact is not a string")
    symbols = facts.get("symbols", {})
    _require(isinstance(symbols, dict) and all(isinstance(one, str) for one in symbols.values()), "bad 'symbols'")
    inputs = Inputs.parse(described["inputs"], missing.decode().removesuffix("\n"))
    return Entry(op, folder / binary, digest, facts, inputs, described["name"])


def _require(is_so: object, problem: str) -> None:
    if not is_so:
        raise ValueError(problem)


def read_entry(folder: Path) -> Entry:
    """Return the entry in a folder that was installed with this package.

    Raises:
        OSError, ValueError, RecursionError: (``UNREADABLE``) when the folder has no readable entry.
    """
    return parse_entry((folder / METADATA).read_bytes(), folder)


def text_of(entry: Entry) -> bytes:
    """Return an entry's metadata file: one line of JSON with the facts, and one with data that is seldom needed."""
    described = {
        "op": entry.op,
        "name": entry.name,
        "binary": entry.binary.name,
        "sha256": entry.sha256,
        "facts": entry.facts,
        "inputs": entry.inputs.described(),
    }
    line = json.dumps(described, separators=(",", ":"), sort_keys=True)
    return f"{line}\n{entry.inputs.lookups.missing}\n".encode()


def write_entry(folder: Path, entry: Entry, built: Path) -> Entry:
    """Move a built binary into a folder for a wheel, metadata last, and return the entry there."""
    binary = folder / named_by_content(built, entry.sha256)
    metadata = built.with_name(METADATA)
    written = Entry(entry.op, binary, entry.sha256, entry.facts, Inputs(), entry.name)
    metadata.write_bytes(text_of(written))
    (folder / METADATA).unlink(missing_ok=True)
    os.replace(built, binary)
    os.replace(metadata, folder / METADATA)
    for earlier in folder.glob(f"{built.stem}-*{built.suffix}"):
        if earlier.name != binary.name:
            with contextlib.suppress(OSError):
                earlier.unlink()
    return written


def named_by_content(built: Path, digest: str) -> str:
    """Return a content-based name for a binary: a process loads the same path only once, and may hold an earlier build."""
    return f"{built.stem}-{digest[:8]}{built.suffix}"
