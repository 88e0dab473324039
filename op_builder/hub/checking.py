"""Checks the files of a variant against the digests in its metadata, as Hugging Face's ``kernels`` computes them."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

from ..engine.errors import DigestError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["METADATA", "digests_of", "require_unchanged"]

METADATA = "metadata.json"
_SIGNATURE = "metadata.json.sigstore"
_ALGORITHMS = ("sha256", "sha512")


def digests_of(folder: Path, algorithm: str = "sha256") -> dict[str, str]:
    """Return the digest of each file of a variant, in base64; the metadata, their signature and ``__pycache__`` have none.

    A link to a folder, whose files are not read, has an empty digest.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.as_posix() in (METADATA, _SIGNATURE) or "__pycache__" in name.parts:
            continue
        if path.is_file():
            digest = hashlib.new(algorithm, path.read_bytes()).digest()
            found[name.as_posix()] = base64.b64encode(digest).decode()
        elif path.is_symlink():
            found[name.as_posix()] = ""
    return found


def require_unchanged(folder: Path, fix: str, metadata_sha256: str = "") -> dict[str, Any]:
    """Check every file of a variant, and return its metadata.

    Args:
        folder: the variant.
        fix: what to do about a changed file.
        metadata_sha256: the expected digest of the metadata, in hexadecimal, and so of every file; empty for any.

    Raises:
        DigestError: when a file was changed, added or removed, or the metadata have no digests.
    """
    problem, metadata = _problem(folder, metadata_sha256)
    if problem:
        msg = f"checking {folder} failed: {problem}. No code of it was run. Fix: {fix}"
        raise DigestError(msg)
    return metadata


def _problem(folder: Path, metadata_sha256: str) -> tuple[str, dict[str, Any]]:
    try:
        content = (folder / METADATA).read_bytes()
        metadata = json.loads(content)
        digest = metadata.get("digest") or {}
        expected, algorithm = dict(digest.get("files") or {}), digest.get("algorithm")
        actual = digests_of(folder, algorithm) if algorithm in _ALGORITHMS else {}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        return f"its files cannot be read: {type(error).__name__}: {error}", {}
    told = hashlib.sha256(content).hexdigest()
    if metadata_sha256 and told != metadata_sha256.lower():
        return f"{METADATA} has the SHA-256 {told}; expected {metadata_sha256}", {}
    if not expected or algorithm not in _ALGORITHMS:
        return f"{METADATA} has no digests of its files by SHA-256 or SHA-512", {}
    wrong = [
        *(f"{name} is missing" for name in sorted(expected.keys() - actual.keys())),
        *(f"{name} is not in {METADATA}" for name in sorted(actual.keys() - expected.keys())),
        *(f"{name} was changed" for name in sorted(expected.keys() & actual.keys()) if expected[name] != actual[name]),
    ]
    return "; ".join(wrong[:5]), metadata
