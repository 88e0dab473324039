"""The life cycle of everything that is built.

In the cache? → take the lock → in the cache now? → build beside it → verify → publish, metadata last. Nothing half-built is
ever visible, a reader never waits for a writer, and a builder that is killed leaves nothing that stops the next one.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..environment import compiler_environment
from .cache import replace_full_cache
from .errors import BuildError, OpError
from .inputs import changed_since, stamp_of
from .lock import build_lock
from .ninja_file import default_jobs
from .progress import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .cache import Cache
    from .entry import Entry
    from .inputs import Inputs

__all__ = ["COMMAND", "Recipe", "Workplace", "ensure_built", "find_built"]

_logger = logging.getLogger(__name__)
_SHOWN_ERRORS = 5
_ATTEMPTS = 5
_NAMES_AN_ERROR = re.compile(r"\berror\b|\bfatal\b|undefined (reference|symbol)|cannot find|not found", re.IGNORECASE)
_SUMMARY = re.compile(r"collect2: |make(\[\d+\])?: |clang(\+\+)?: error: linker command failed")
COMMAND = "command: "
"""Begins the line, before what a command prints, that names the command as JSON."""
_NO_SPACE = "No space left on device"


class Recipe(Protocol):
    """Everything that decides what is built.

    Attributes:
        op: the op's name.
        output: the name of the file that is built.
        note: what makes a build slow, where that is known.
    """

    @property
    def op(self) -> str: ...
    @property
    def output(self) -> str: ...
    @property
    def note(self) -> str: ...

    def fingerprint(self) -> str:
        """Return the name of the result."""

    def key(self) -> str:
        """Return the name that the result has whichever compiler builds it."""

    def described(self) -> dict[str, Any]:
        """Return what the metadata of a build keep."""

    def produce(self, workplace: Workplace) -> dict[str, Any]:
        """Build ``output`` in a workplace, and return what the metadata keep of the result besides."""

    def covered(self) -> list[str]:
        """Return the files whose content is in the fingerprint."""

    def places(self) -> tuple[str, ...]:
        """Return where the sources and their headers are."""

    def inputs(self, workplace: Workplace) -> Inputs:
        """Return the files that decided the result and that the fingerprint does not cover."""

    def verify(self, built: Path) -> None:
        """Raise OpError when what was built is not whole."""


@dataclass(frozen=True)
class Workplace:
    """Where and with what a recipe is followed.

    Attributes:
        folder: an empty folder, to build in.
        log: the file that keeps what the compiler printed when it fails.
        jobs: how many compilers run at once.
        environment: the environment to run them in.
        tick: called from time to time with the seconds since the start.
    """

    folder: Path
    log: Path
    jobs: int
    environment: dict[str, str]
    tick: Callable[[float], None]

    def failure(self, op: str, output: str) -> Exception:
        """Return the error to raise for what a compiler printed, and keep it all in the log."""
        if _NO_SPACE in output:
            return OSError(28, _NO_SPACE, str(self.folder))
        self.log.write_text(output)
        said: list[str] = []
        command = failed = ""
        for line in output.splitlines():
            if line.startswith(COMMAND):
                command = shlex.join(json.loads(line.removeprefix(COMMAND)))
            elif line.startswith("FAILED:") and failed:
                break  # one command's errors are enough
            elif line.startswith("FAILED:"):
                said, command = [], ""  # ninja names the failed command's output before what that printed
            elif not line.startswith(("ninja:", 'exec "$')):
                said.append(line.strip())
                failed = failed or command
        said = [line for line in said if not _SUMMARY.match(line)] or said
        errors = [line for line in said if _NAMES_AN_ERROR.search(line)] or said[-_SHOWN_ERRORS:]
        return BuildError(op, failed or command or "ninja", errors[:_SHOWN_ERRORS], self.log)


def find_built(recipe: Recipe, cache: Cache) -> Entry | None:
    """Return the finished build of a recipe, or None; starts no process."""
    return cache.find(recipe.op, recipe.fingerprint(), recipe.places())


def ensure_built(recipe: Recipe, cache: Cache, jobs: int | None = None) -> Entry:
    """Return the finished build of a recipe, building it where it does not exist.

    Args:
        recipe: what to build.
        cache: where to look and to publish.
        jobs: how many compilers run at once; None decides by cores and memory.

    Raises:
        BuildError: when the compiler or linker fails. The next call tries again.
        CacheError: when no disk takes the build.
        OpError: when the system allows no process, or the sources change all the time.
    """
    entry = find_built(recipe, cache)
    if entry is not None:
        return entry
    try:
        return _build_settled(recipe, cache, jobs)
    except OSError as error:
        if not cache.is_refused_by(error):
            raise _cannot_build(recipe, error) from error
        fresh = replace_full_cache(cache, error)
    try:
        return _build_settled(recipe, fresh, jobs)
    except OSError as error:
        raise (fresh.refusal(error) if fresh.is_refused_by(error) else _cannot_build(recipe, error)) from error


def _cannot_build(recipe: Recipe, error: OSError) -> OpError:
    msg = f"building the op '{recipe.op}' failed: got {error}; expected the system to allow it. Fix: see to that, and call again."
    return OpError(msg)


def _build_settled(recipe: Recipe, cache: Cache, jobs: int | None) -> Entry:
    """Build until the sources are, after the build, what they were before it."""
    for _ in range(_ATTEMPTS):
        name = recipe.fingerprint()
        with build_lock(cache.lock_file(recipe.op, name), recipe.op):
            entry = cache.find(recipe.op, name, recipe.places()) or _build(recipe, name, cache, jobs)
        if entry is not None:
            return entry
        _logger.warning("the sources of the op '%s' changed while they were compiled; it is built again", recipe.op)
    msg = (
        f"building the op '{recipe.op}' failed: got sources that changed during each of {_ATTEMPTS} builds; expected them "
        f"to stay. Fix: stop what writes them."
    )
    raise OpError(msg)


def _build(recipe: Recipe, name: str, cache: Cache, jobs: int | None) -> Entry | None:
    target = recipe.described().get("target", "any target")
    note = f"; {recipe.note}" if recipe.note else ""
    _logger.info("building the op '%s' (%s)%s", recipe.op, target, note)
    started = time.perf_counter()
    staging = cache.staging(recipe.op, name)
    tick = Reporter(recipe.op, "building", recipe.note).tick
    tick(0.0)
    environment = compiler_environment(cache.root, staging)
    workplace = Workplace(staging, cache.log_file(recipe.op, name), jobs or default_jobs(), environment, tick)
    try:
        began_ns = _clock_of(staging)
        before = {path: stamp_of(path) for path in recipe.covered()}
        produced = recipe.produce(workplace)
        built = staging / recipe.output
        recipe.verify(built)
        inputs = recipe.inputs(workplace)
        if recipe.fingerprint() != name or any(stamp_of(path) != stamp for path, stamp in before.items()):
            return None
        if changed_since(inputs.files, began_ns):
            return None
        entry = cache.publish(recipe.op, name, built, {**recipe.described(), **produced}, inputs)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _logger.info("built the op '%s' in %.1f s", recipe.op, time.perf_counter() - started)
    return entry


def _clock_of(folder: Path) -> int:
    """Return the time as the disk of a folder tells it, which is not always this machine's."""
    marker = folder / "clock"
    marker.write_bytes(b"")
    return marker.stat().st_mtime_ns
