"""Building before anyone asks: every op for every target, into the cache, and from there into a wheel's ``_C``."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .all_ops import every_builder
from .engine import environment
from .engine.build import ensure_built, find_built
from .engine.cache import open_cache
from .engine.entry import write_entry
from .engine.errors import OpError, ToolchainError
from .engine.ninja_file import default_jobs
from .engine.prebuilt import folder_for
from .engine.targets import (
    CUDA_TARGETS,
    NATIVE,
    host_cpu_targets,
    is_device_target,
    require_target,
    wheel_cpu_targets,
)
from .engine.toolchains.nvrtc import probe_nvrtc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .builder import OpBuilder
    from .engine.build import Recipe
    from .engine.cache import Cache
    from .engine.entry import Entry

__all__ = [
    "BuildOutcome",
    "Order",
    "all_targets",
    "build_orders",
    "copy_entry",
    "named_builders",
    "orders",
    "wheel_targets",
]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
    """One thing to build: an op, for a target."""

    op: str
    target: str
    recipe: Recipe


@dataclass(frozen=True)
class BuildOutcome:
    """What became of an order; ``was_built`` is False when the cache had it already."""

    order: Order
    entry: Entry
    was_built: bool
    seconds: float


def wheel_targets() -> list[str]:
    """Return what a wheel serves, for this machine's architecture or that of ``ANYACCEL_PLATFORM``, and can be compiled here.

    And what ``ANYACCEL_WHEEL_TARGETS`` names.
    """
    cuda = CUDA_TARGETS if probe_nvrtc().tool is not None else ()
    return list(dict.fromkeys([*wheel_cpu_targets(), *cuda, *environment.wheel_targets()]))


def all_targets() -> list[str]:
    """Return everything this machine can target: this machine itself, and what a wheel serves."""
    return [NATIVE, *wheel_targets()]


def named_builders(names: Sequence[str]) -> list[OpBuilder]:
    """Return the builders of ops, by their own names or their builders'.

    Raises:
        OpError: when there is none of a name.
    """
    every = every_builder()
    found: list[OpBuilder] = []
    for name in names:
        matching = [builder for builder in every if name in (builder.NAME, type(builder).__name__)]
        if not matching:
            choices = ", ".join(dict.fromkeys(builder.NAME for builder in every))
            msg = f"building ahead of time failed: got the op {name!r}; expected one of: {choices}. Fix: correct the name."
            raise OpError(msg)
        found += matching
    return found


def orders(builders: Sequence[OpBuilder], targets: Sequence[str]) -> list[Order]:
    """Return what is to be built: everything that the ops have for the targets, each file once.

    A target for which none of them has code is left out, which the log says. Nothing is built for this machine alone that
    a level of its CPU serves.

    Raises:
        OpError: when a target does not exist, or there is nothing to build.
        ToolchainError: when there is no tool to build one of them.
    """
    names = ", ".join(dict.fromkeys(builder.NAME for builder in builders))
    found: dict[str, Order] = {}
    serves_here = any(level in targets for level in host_cpu_targets())
    for target in map(require_target, targets):
        needed = [one for one in builders if not (target == NATIVE and one.STABLE_ABI and serves_here)]
        recipes = [recipe for builder in needed for recipe in builder.recipes(target)]
        if not recipes:
            kind = "device code" if is_device_target(target) else "code for the CPU"
            _logger.warning("%s: %s has no %s, so nothing is built for it", target, names, kind)
        found |= {recipe.fingerprint(): Order(recipe.op, target, recipe) for recipe in recipes}
    if not found:
        msg = (
            f"building ahead of time failed: got {names} for {', '.join(targets)}; expected an op with code for it. "
            f"Fix: name another op or target."
        )
        raise OpError(msg)
    return list(found.values())


def build_orders(wanted: Sequence[Order]) -> Iterator[BuildOutcome]:
    """Build what is not in the cache, as many orders at once as cores and memory allow, and yield each in its turn.

    When the caller is interrupted, or takes no more, running compilers are ended and nothing new is begun.

    Raises:
        BuildError: when a compiler fails.
    """
    cache = open_cache(environment.cache_dir())
    workers = min(environment.build_jobs() or default_jobs(), max(1, len(wanted)))
    stop = threading.Event()
    pool = ThreadPoolExecutor(workers)
    try:
        pending = [pool.submit(_follow, order, cache, None if len(wanted) == 1 else 1, stop) for order in wanted]
        for future in pending:
            yield future.result()
    finally:  # Ctrl-C, a failure, or a caller that wants no more: what runs in the threads ends
        stop.set()
        pool.shutdown(cancel_futures=True)


def _follow(order: Order, cache: Cache, jobs: int | None, stop: threading.Event) -> BuildOutcome:
    started = time.perf_counter()
    found = find_built(order.recipe, cache)
    entry = found or ensure_built(order.recipe, cache, jobs or environment.build_jobs(), stop)
    return BuildOutcome(order, entry, found is None, time.perf_counter() - started)


def copy_entry(outcome: BuildOutcome, root: Path) -> Path:
    """Copy what was built to where a wheel carries it, and return the folder.

    Raises:
        ToolchainError: when it was built for this machine only.
    """
    order, entry = outcome.order, outcome.entry
    if order.target == NATIVE:
        msg = (
            f"copying the op '{order.op}' failed: got a build for this machine; expected one for a target that others have. "
            f"Fix: name targets, such as --target x86-64-v3."
        )
        raise ToolchainError(msg)
    folder = folder_for(root, order.op, order.target)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as staging:
        copied = shutil.copyfile(entry.binary, Path(staging) / order.recipe.output)
        write_entry(folder, entry, copied)
    return folder
