"""A finished build in its folder: the binary, and the metadata that say what it is and what it must still be.

Nothing is taken from metadata before it has been checked: they may be damaged, or written by another version.
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
"""What reading a damaged entry raises."""

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
        facts: what its fingerprint was made of.
        inputs: the files that decided it as well.
        name: what it was published as; a copy in a wheel lies in a folder of another name.
    """

    op: str
    binary: Path
    sha256: str
    facts: dict[str, Any]
    inputs: Inputs = Inputs()
    name: str = ""

    def is_intact(self) -> bool:
        """Return whether the binary is what was published."""
        return digest_of(os.fspath(self.binary)) == self.sha256


def _is_plain_name(name: str) -> bool:
    return 0 < len(name) <= 201 and name[0] not in ".-" and _PLAIN.issuperset(name)


def parse_entry(content: bytes, folder: Path) -> Entry:
    """Return the entry that metadata describe.

    Args:
        content: of the metadata's file.
        folder: where the binary is.

    Raises:
        ValueError, RecursionError: (``UNREADABLE``) when they are no metadata.
    """
    described_in, _, missing = content.partition(b"\n")
    _require(b"\\u0000" not in described_in, "it has a NUL")
    described = json.loads(described_in.decode())
    _require(isinstance(described, dict) and set(described) == _KEYS, "it has other members than an entry's")
    op, binary, digest, facts = (described[member] for member in ("op", "binary", "sha256", "facts"))
    _require(isinstance(op, str) and op.isascii() and op.isidentifier(), "'op' is no name")
    _require(isinstance(described["name"], str), "'name' is no text")
    _require(isinstance(binary, str) and _is_plain_name(binary), "'binary' is no file's name")
    _require(binary != METADATA, "'binary' is the metadata")
    _require(isinstance(digest, str) and len(digest) == 64 and _HEXADECIMAL.issuperset(digest), "'sha256' is no digest")
    _require(isinstance(facts, dict), "'facts' is no object")
    _require(all(isinstance(facts.get(name, ""), str) for name in _TEXTS), "a fact is no text")
    symbols = facts.get("symbols", {})
    _require(isinstance(symbols, dict) and all(isinstance(one, str) for one in symbols.values()), "'symbols' is none")
    inputs = Inputs.parse(described["inputs"], missing.decode().removesuffix("\n"))
    return Entry(op, folder / binary, digest, facts, inputs, described["name"])


def _require(is_so: object, problem: str) -> None:
    if not is_so:
        raise ValueError(problem)


def read_entry(folder: Path) -> Entry:
    """Return the entry in a folder that was installed with this package.

    Raises:
        OSError, ValueError, RecursionError: (``UNREADABLE``) when it has none that can be read.
    """
    return parse_entry((folder / METADATA).read_bytes(), folder)


def text_of(entry: Entry) -> bytes:
    """Return an entry's metadata as they are written: a line of JSON, and one with what is seldom looked into."""
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
    """Move a built binary into a folder that a wheel is made of, its metadata last, and return the entry there."""
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
    """Return the name to publish a binary under: a process may hold an earlier one, and loads the same path only once."""
    return f"{built.stem}-{digest[:8]}{built.suffix}"
