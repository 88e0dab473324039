"""Writes a variant into a folder that Hugging Face's kernels loads."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.errors import OpError
from ..engine.targets import CPU_TARGETS, SPIRV
from .checking import METADATA, digests_of
from .files import copied_files, made_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engine.entry import Entry
    from .variants import Variant

__all__ = ["write_variant"]


def write_variant(variant: Variant, built: Mapping[str, Entry], root: Path) -> Path:
    """Write a variant, and return its folder, ``<root>/<kernel>/build/<variant>``; ``get_local_kernel`` takes the kernel's.

    It is written elsewhere in ``root`` and then renamed, so nobody sees half of it. Of several processes, the last one wins.

    Args:
        variant: the variant.
        built: the builds, by their recipes' fingerprints.
        root: the folder for kernels; a folder of the same variant in it is replaced.

    Raises:
        OpError: when something else is at the variant's place, or it cannot be written.
    """
    place = root / variant.kernel_name() / "build" / variant.name
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".anyaccel-", dir=root) as scratch:
            made = Path(scratch) / variant.name
            _fill(made, variant, built)
            replaced = 0
            while not _renamed(made, place):
                _require_own_or_absent(place, variant)
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    os.rename(place, Path(scratch) / f"replaced{replaced}")
                replaced += 1
    except OSError as error:
        msg = f"writing {place} failed: {error}. Fix: name a folder that can be written, on a disk with free space."
        raise OpError(msg) from error
    return place


def _renamed(made: Path, place: Path) -> bool:
    """Rename a folder, and return whether that was possible; it is not when the place was taken.

    The place is not looked at afterwards: another process may have taken its folder away by then.
    """
    try:
        os.rename(made, place)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True


def _fill(folder: Path, variant: Variant, built: Mapping[str, Entry]) -> None:
    described: dict[str, Any] = {
        "namespace": variant.namespace,
        "levels": {order.target: _needed(order.target) for order in variant.levels},
    }
    binaries = {f"{variant.namespace}-{order.target}.so": order for order in variant.levels}
    if variant.runtime is not None:
        named = {f"{order.target}{Path(order.recipe.output).suffix}": order for order in variant.code}
        described["gpu"] = {
            "runtime": variant.runtime.op,
            "code": {
                order.target: {"file": name, "symbols": _symbols(built[order.recipe.fingerprint()])}
                for name, order in named.items()
            },
        }
        binaries |= named | {f"{variant.runtime.op}.so": variant.runtime}
    texts = {
        **copied_files(variant.op, variant.backend), **made_files(variant.op), "library.json": _json(described)
    }  # fmt: skip
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name, order in binaries.items():
        shutil.copyfile(built[order.recipe.fingerprint()].binary, folder / name)
    metadata = {
        "name": variant.kernel_name(),
        "id": variant.namespace,
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": variant.backend, **_architectures(variant)},
        "digest": {"algorithm": "sha256", "files": digests_of(folder)},
    }
    (folder / METADATA).write_text(_json(metadata), encoding="utf-8")


def _symbols(entry: Entry) -> dict[str, str]:
    """Return the symbol of each kernel, by its template instance."""
    return {re.sub(r"^run<(.*)>$", r"\1", name): symbol for name, symbol in entry.facts["symbols"].items()}


def _architectures(variant: Variant) -> dict[str, list[str]]:
    """Return the GPUs, as the metadata name them: ``9.0``, ``12.0+PTX``, ``gfx942``."""
    found = []
    for order in (one for one in variant.code if one.target != SPIRV):
        kind, _, number = order.target.rpartition("_")
        digits = re.fullmatch(r"(\d+)(\d)([af]?)", number) if kind else None
        found.append(f"{digits[1]}.{digits[2]}{digits[3]}{'+PTX' * (kind == 'compute')}" if digits else order.target)
    return {"archs": found} if found else {}


def _needed(level: str) -> list[str]:
    return list(next(levels[level] for levels in CPU_TARGETS.values() if level in levels))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _require_own_or_absent(place: Path, variant: Variant) -> None:
    """Check that a place has a build of this kernel, or nothing any more.

    Another process may take the folder away while it is read, and put its own there: then the answer is that ours has gone.
    """
    msg = (
        f"writing {place} failed: it exists, and is not the kernel {variant.kernel_name()}. "
        f"Fix: remove it, or name another folder."
    )
    try:
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except OSError as error:
        raise OpError(msg) from error
    try:
        if _name_in(folder) != variant.kernel_name() and _is_at(folder, place):
            raise OpError(msg)
    finally:
        os.close(folder)


def _name_in(folder: int) -> object:
    try:
        with open(METADATA, encoding="utf-8", opener=functools.partial(os.open, dir_fd=folder)) as metadata:
            return json.load(metadata)["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_at(folder: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(folder), os.lstat(place))
    except FileNotFoundError:
        return False
