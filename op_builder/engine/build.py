"""The life cycle of everything that is built.

In the cache? → take the lock → in the cache now? → build beside it → verify → publish, metadata last. Nothing half-built is
ever visible, a reader never waits for a writer, and a builder that is killed leaves nothing that stops the next one.
"""

from __future__ import annotations

import logging
import re
import shutil
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..environment import compiler_environment
from .cache import replace_full_cache
from .errors import BuildError, OpError
from .fingerprint import fingerprint
from .lock import build_lock
from .ninja_file import default_jobs, run_ninja, write_ninja

if TYPE_CHECKING:
    from pathlib import Path

    from .cache import Cache, Entry
    from .ninja_file import SharedLibrary

__all__ = ["Recipe", "ensure_built", "find_built"]

_logger = logging.getLogger(__name__)
_SHOWN_ERRORS = 5
_NAMES_AN_ERROR = re.compile(r"\berror\b|undefined (reference|symbol)|cannot find|not found", re.IGNORECASE)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what is built.

    Attributes:
        op: the op's name.
        library: the sources, the compiler and its flags.
        include_dirs: this project's own include directories, whose headers count in the fingerprint.
        facts: further facts for the fingerprint: the toolchain's version, the target, the ABI.
    """

    op: str
    library: SharedLibrary
    include_dirs: tuple[Path, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    def all_facts(self) -> dict[str, Any]:
        """Return what the fingerprint is made of besides the files' contents."""
        library = self.library
        return {
            **self.facts,
            "op": self.op,
            "compiler": list(library.compiler),
            "compile_flags": list(library.compile_flags),
            "link_flags": list(library.link_flags),
            "name": library.name,
        }

    def fingerprint(self) -> str:
        """Return the name of the result."""
        return fingerprint(self.library.sources, self.include_dirs, self.all_facts())


def find_built(recipe: Recipe, cache: Cache) -> Entry | None:
    """Return the finished build of a recipe, or None; starts no process."""
    return cache.find(recipe.op, recipe.fingerprint())


def ensure_built(recipe: Recipe, cache: Cache, jobs: int | None = None) -> Entry:
    """Return the finished build of a recipe, building it where it does not exist.

    Args:
        recipe: what to build.
        cache: where to look and to publish.
        jobs: how many compilers run at once; None decides by cores and memory.

    Raises:
        BuildError: when the compiler or linker fails. The next call tries again.
    """
    name = recipe.fingerprint()
    entry = cache.find(recipe.op, name)
    if entry is not None:
        return entry
    try:
        return _build_locked(recipe, name, cache, jobs)
    except OSError as error:
        return _build_locked(recipe, name, replace_full_cache(cache, error), jobs)


def _build_locked(recipe: Recipe, name: str, cache: Cache, jobs: int | None) -> Entry:
    with build_lock(cache.lock_file(recipe.op, name), recipe.op):
        return cache.find(recipe.op, name) or _build(recipe, name, cache, jobs)


def _build(recipe: Recipe, name: str, cache: Cache, jobs: int | None) -> Entry:
    _logger.info("building the op '%s' (%s)", recipe.op, recipe.facts.get("target", "any target"))
    started = time.perf_counter()
    staging = cache.staging(recipe.op, name)
    try:
        write_ninja(recipe.library, staging)
        finished = run_ninja(staging, jobs or default_jobs(), compiler_environment(cache.root))
        built = staging / recipe.library.name
        if finished.returncode != 0 or not built.is_file():
            raise _failure(recipe, finished.stdout, cache.log_file(recipe.op, name))
        _verify(recipe, built)
        entry = cache.publish(recipe.op, name, built, recipe.all_facts())
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _logger.info("built the op '%s' in %.1f s", recipe.op, time.perf_counter() - started)
    return entry


def _failure(recipe: Recipe, output: str, log: Path) -> Exception:
    if "No space left on device" in output:
        return OSError(28, "No space left on device", str(log.parent))
    log.write_text(output)
    lines = output.splitlines()
    errors = [line.strip() for line in lines if _NAMES_AN_ERROR.search(line) and not line.startswith("ninja:")]
    failed = next((index for index, line in enumerate(lines) if line.startswith("FAILED:")), None)
    command = lines[failed + 1].strip() if failed is not None and failed + 1 < len(lines) else "ninja"
    shown = [line for line in errors if line != command][:_SHOWN_ERRORS] or lines[-_SHOWN_ERRORS:]
    return BuildError(recipe.op, command, shown, log)


def _verify(recipe: Recipe, built: Path) -> None:
    """Refuse a file that is no whole shared library, such as one that a full disk cut short: loading it would be fatal."""
    content = built.read_bytes()
    problem = ""
    if content[:4] not in (b"\x7fELF", b"\xcf\xfa\xed\xfe"):
        problem = f"a file that begins with {content[:4]!r}"
    elif content[:5] == b"\x7fELF\x02" and len(content) < _elf_bytes(content):
        problem = f"{len(content)} of {_elf_bytes(content)} bytes"
    if problem:
        command = " ".join(recipe.library.compiler)
        msg = f"verifying the op '{recipe.op}' failed: got {problem} from {command}; expected a shared library. Fix: check it."
        raise OpError(msg)


def _elf_bytes(content: bytes) -> int:
    """Return how long a 64-bit ELF file must be: its section headers come last."""
    if len(content) < 64:
        return 64
    (offset,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    return int(offset + size * count)
