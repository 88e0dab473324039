"""The life cycle of everything that is built.

In the cache? → take the lock → in the cache now? → build beside it → verify → publish, metadata last. Nothing half-built is
ever visible, a reader never waits for a writer, and a builder that is killed leaves nothing that stops the next one.
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
from .inputs import ChangedMeanwhile, changed_since, stamp_of
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
        """Build ``output`` in a workplace, and return what the metadata keep of the result as well."""

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
        tick: called from time to time with the seconds since the start, and which process runs; may raise, to give up.
        limit_seconds: how long one command may run; None sets no limit.
        began_ns: when the build began, by the clock of its disk.
    """

    folder: Path
    log: Path
    jobs: int
    environment: dict[str, str]
    tick: Callable[[float, str], None]
    limit_seconds: float | None = None
    began_ns: int = 0

    def error(self, op: str, failure: Failure) -> Exception:
        """Return the error to raise for a command that failed, and keep what it printed in the log."""
        return failure.error(op, self.folder, self.log)


def find_built(recipe: Recipe, cache: Cache) -> Entry | None:
    """Return the finished build of a recipe, or None; starts no process."""
    return cache.find(recipe.op, recipe.fingerprint(), recipe.places())


def ensure_built(recipe: Recipe, cache: Cache, jobs: int | None = None, stop: threading.Event | None = None) -> Entry:
    """Return the finished build of a recipe, building it where it does not exist.

    Args:
        recipe: what to build.
        cache: where to look and to publish.
        jobs: how many compilers run at once; None decides by cores and memory.
        stop: once it is set, by another thread, the build is given up and its compilers are ended.

    Raises:
        BuildError: when the compiler or linker fails. The next call tries again.
        BuildStoppedError: when ``stop`` is set, or somebody ends the compilers.
        BuildTimeoutError: when a compiler runs longer than ``ANYACCEL_BUILD_TIMEOUT`` allows.
        CacheError: when no disk takes the build.
        OpError: when the system allows no process, or the sources change all the time.
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
    msg = (
        f"building the op '{recipe.op}' failed: got {error}; expected the system to allow it. "
        f"Fix: correct what the message names, and call again."
    )
    return OpError(msg)


def _build_settled(recipe: Recipe, cache: Cache, jobs: int | None, stop: threading.Event | None) -> Entry:
    """Build until the sources are, after the build, what they were before it."""
    for _ in range(_ATTEMPTS):
        name = recipe.fingerprint()
        with build_lock(cache.lock_file(recipe.op, name), recipe.op, stop):
            entry = cache.find(recipe.op, name, recipe.places()) or _build(recipe, name, cache, jobs, stop)
        if entry is not None:
            return entry
        _logger.warning("the sources of the op '%s' changed while they were compiled; it is built again", recipe.op)
    msg = (
        f"building the op '{recipe.op}' failed: its sources changed during each of {_ATTEMPTS} builds. "
        f"Fix: stop what writes them."
    )
    raise OpError(msg)


def _build(recipe: Recipe, name: str, cache: Cache, jobs: int | None, stop: threading.Event | None) -> Entry | None:
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
        produced = recipe.produce(workplace)
        built = staging / recipe.output
        recipe.verify(built)
        inputs = recipe.inputs(workplace)
        if recipe.fingerprint() != name or any(stamp_of(path) != stamp for path, stamp in before.items()):
            return None
        if changed_since([*inputs.paths(), *before], began_ns):
            return None
        entry = cache.publish(recipe.op, name, built, {**recipe.described(), **produced}, inputs)
    except ChangedMeanwhile as changed:
        _logger.debug("%s changed while the op '%s' was built", changed, recipe.op)
        return None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _logger.info("built the op '%s' in %.1f s", recipe.op, time.perf_counter() - started)
    return entry


def _clock_of(folder: Path) -> int:
    """Return the time as the disk of a folder tells it, which is not always this machine's."""
    marker = folder / "clock"
    marker.write_bytes(b"")
    return marker.stat().st_mtime_ns
