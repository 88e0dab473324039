"""How every build proceeds.

Look in the cache → take the lock → look again → build in a separate folder → verify → publish, metadata last. Entries are
never half-built, readers never wait for writers, and a killed builder leaves nothing that stops the next one.
"""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .cache import replace_full_cache
from .environment import build_timeout, compiler_environment
from .errors import OpError
from .inputs import ChangedMeanwhile, changed_since, stamp_of, times_ahead
from .lock import build_lock
from .ninja_file import default_jobs
from .progress import Reporter

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from .cache import Cache
    from .entry import Entry
    from .failure import Failure
    from .inputs import Inputs

__all__ = ["Recipe", "Workplace", "ensure_built", "find_built"]

_logger = logging.getLogger(__name__)
_ATTEMPTS = 5


class Recipe(Protocol):
    """The facts that decide a build, and the steps that make it.

    Attributes:
        op: the op's name.
        output: the name of the built file.
        note: why the build is slow, if it is.
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
        """Return the name of the result without the compiler: the same whichever compiler builds it."""

    def described(self) -> dict[str, Any]:
        """Return the facts that the build's metadata keep."""

    def produce(self, workplace: Workplace) -> dict[str, Any]:
        """Build ``output`` in a workplace, and return further facts about the result for the metadata."""

    def covered(self) -> list[str]:
        """Return the files whose content is part of the fingerprint."""

    def places(self) -> tuple[str, ...]:
        """Return the directories of the sources and their headers."""

    def inputs(self, workplace: Workplace) -> Inputs:
        """Return the files that decided the result and are not part of the fingerprint."""

    def verify(self, built: Path) -> None:
        """Raise OpError when the built file is not complete."""


@dataclass(frozen=True)
class Workplace:
    """The place and the settings for one build.

    Attributes:
        folder: an empty folder to build in.
        log: the file for the compiler's output if it fails.
        jobs: the number of compilers to run at once.
        environment: the compilers' environment.
        tick: called regularly with the seconds since the start and the running process; may raise, to stop the build.
        limit_seconds: how long one command may run; None sets no limit.
        began_ns: the start of the build, by the clock of its disk.
    """

    folder: Path
    log: Path
    jobs: int
    environment: dict[str, str]
    tick: Callable[[float, str], None]
    limit_seconds: float | None = None
    began_ns: int = 0

    def error(self, op: str, failure: Failure) -> Exception:
        """Return the error to raise for a failed command, and write its output to the log."""
        return failure.error(op, self.folder, self.log)


def find_built(recipe: Recipe, cache: Cache) -> Entry | None:
    """Return the finished build of a recipe, or None; starts no process."""
    return cache.find(recipe.op, recipe.fingerprint(), recipe.places())


def ensure_built(recipe: Recipe, cache: Cache, jobs: int | None = None, stop: threading.Event | None = None) -> Entry:
    """Return the finished build of a recipe, building it if it does not exist.

    Args:
        recipe: what to build.
        cache: where to look for it and to publish it.
        jobs: the number of compilers to run at once; None decides by cores and memory.
        stop: when another thread sets it, the build stops and its compilers are ended.

    Raises:
        BuildError: when the compiler or linker fails. The next call tries again.
        BuildStoppedError: when ``stop`` is set, or somebody ends the compilers.
        BuildTimeoutError: when a compiler runs longer than ``ANYACCEL_BUILD_TIMEOUT`` allows.
        CacheError: when no disk has room for the build.
        OpError: when the system cannot start a process, or the sources keep changing.
    """
    entry = find_built(recipe, cache)
    if entry is not None:
        return entry
    try:
        return _build_settled(recipe, cache, jobs, stop)
    except OSError as error:
        if not cache.is_refused_by(error):
            raise _cannot_build(recipe, error) from error
        fresh = replace_full_cache(cache, error)
    try:
        return _build_settled(recipe, fresh, jobs, stop)
    except OSError as error:
        raise (fresh.refusal(error) if fresh.is_refused_by(error) else _cannot_build(recipe, error)) from error


def _cannot_build(recipe: Recipe, error: OSError) -> OpError:
    msg = f"building the op '{recipe.op}' failed: {error}. Fix: resolve this error, and call again."
    return OpError(msg)


def _build_settled(recipe: Recipe, cache: Cache, jobs: int | None, stop: threading.Event | None) -> Entry:
    """Build, and repeat the build if the sources changed meanwhile."""
    known: dict[str, int] = {}
    for _ in range(_ATTEMPTS):
        name = recipe.fingerprint()
        with build_lock(cache.lock_file(recipe.op, name), recipe.op, stop):
            entry = cache.find(recipe.op, name, recipe.places()) or _build(recipe, name, cache, jobs, stop, known)
        if entry is not None:
            return entry
        _logger.warning("the sources of the op '%s' changed during the build; building it again", recipe.op)
    msg = (
        f"building the op '{recipe.op}' failed: its sources changed during each of {_ATTEMPTS} builds. "
        f"Fix: stop the program that writes them."
    )
    raise OpError(msg)


def _build(
    recipe: Recipe, name: str, cache: Cache, jobs: int | None, stop: threading.Event | None, known: dict[str, int]
) -> Entry | None:
    target = recipe.described().get("target", "any target")
    note = f"; {recipe.note}" if recipe.note else ""
    _logger.info("building the op '%s' (%s)%s", recipe.op, target, note)
    started = time.perf_counter()
    tick = Reporter(recipe.op, "building", recipe.note, stop).tick
    tick(0.0)
    limit_seconds = build_timeout()
    staging = cache.staging(recipe.op, name)
    try:
        environment = compiler_environment(cache.root, staging)
        log = cache.log_file(recipe.op, name)
        began_ns = _clock_of(staging)
        workplace = Workplace(staging, log, jobs or default_jobs(), environment, tick, limit_seconds, began_ns)
        before = {path: stamp_of(path) for path in recipe.covered()}
        known |= times_ahead(before, began_ns)
        produced = recipe.produce(workplace)
        built = staging / recipe.output
        recipe.verify(built)
        inputs = recipe.inputs(workplace)
        if recipe.fingerprint() != name or any(stamp_of(path) != stamp for path, stamp in before.items()):
            return None
        if changed_since([*inputs.paths(), *before], began_ns, known):
            return None
        entry = cache.publish(recipe.op, name, built, {**recipe.described(), **produced}, inputs)
    except ChangedMeanwhile as changed:
        _logger.debug("%s changed during the build of the op '%s'", changed, recipe.op)
        return None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _logger.info("built the op '%s' in %.1f s", recipe.op, time.perf_counter() - started)
    return entry


def _clock_of(folder: Path) -> int:
    """Return the current time by the clock of a folder's disk, which can differ from this machine's."""
    marker = folder / "clock"
    marker.write_bytes(b"")
    return marker.stat().st_mtime_ns
