"""Builds ops ahead of time, for every target, into the cache, and copies them into a wheel's ``_C``."""

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
from .engine.errors import NothingToBuildError, OpError, ToolchainError
from .engine.ninja_file import default_jobs
from .engine.prebuilt import folder_for
from .engine.targets import (
    CUDA_TARGETS,
    NATIVE,
    OPENCL_CPU,
    host_cpu_targets,
    is_device_target,
    require_target,
    wheel_cpu_targets,
)
from .engine.toolchains.nvrtc import probe_nvrtc
from .engine.toolchains.sycl import probe_dpcpp

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
    "buildable",
    "copy_entry",
    "named_builders",
    "orders",
    "require_target_of_wheels",
    "wheel_targets",
]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
    """One op to build for one target."""

    op: str
    target: str
    recipe: Recipe


@dataclass(frozen=True)
class BuildOutcome:
    """The result of an order; ``was_built`` is False when the cache already had the build."""

    order: Order
    entry: Entry
    was_built: bool
    seconds: float


def wheel_targets() -> list[str]:
    """Return the targets of a wheel for this machine or ``ANYACCEL_PLATFORM`` that can be compiled here.

    Those that ``ANYACCEL_WHEEL_TARGETS`` names are added.
    """
    cuda = CUDA_TARGETS if probe_nvrtc().tool is not None else ()
    return list(dict.fromkeys([*wheel_cpu_targets(), *cuda, *environment.wheel_targets()]))


def all_targets() -> list[str]:
    """Return this machine itself, SYCL's CPU device, and the targets of a wheel, as far as compilers for them are installed."""
    sycl = [OPENCL_CPU] if probe_dpcpp().tool is not None else []
    return [NATIVE, *sycl, *wheel_targets()]


def named_builders(names: Sequence[str]) -> list[OpBuilder]:
    """Return the builders of ops, given the names of ops or of builders.

    Raises:
        OpError: when a name is unknown.
    """
    every = every_builder()
    found: list[OpBuilder] = []
    for name in names:
        matching = [builder for builder in every if name in (builder.NAME, type(builder).__name__)]
        if not matching:
            choices = ", ".join(dict.fromkeys(builder.NAME for builder in every))
            msg = (
                f"building ahead of time failed: got the op {name!r}; expected one of: {choices}. "
                f"Fix: pass some of these, or --all."
            )
            raise OpError(msg)
        found += matching
    return found


def buildable(builders: Sequence[OpBuilder]) -> list[OpBuilder]:
    """Return the builders without those that need another C++ compiler than this machine has; log a warning for each of these.

    ziglang has its own C++ library. Sources with torch's C++ API or DPC++'s need the system's.

    Raises:
        ToolchainError: when there is no compiler for any of them.
    """
    found: list[OpBuilder] = []
    missing: dict[str, ToolchainError] = {}
    has_code = False
    for builder in builders:
        try:
            has_code = bool(builder.recipes(NATIVE)) or has_code
            found.append(builder)
        except ToolchainError as error:
            missing[builder.NAME] = error
    if missing and not has_code:
        raise next(iter(missing.values()))
    for name, reason in missing.items():
        _logger.warning("the op '%s' is left out: %s", name, reason)
    return found


def orders(builders: Sequence[OpBuilder], targets: Sequence[str]) -> list[Order]:
    """Return the builds to make: all that the ops have for the targets, each file once.

    Targets for which no op has code are left out, with a log message. A build for this machine alone is left out when a
    build for one of its CPU levels also serves it.

    Raises:
        OpError: when a target does not exist.
        NothingToBuildError: when there is no builder, or none has code for a target.
        ToolchainError: when the tool for a build is missing.
    """
    if not builders:
        msg = "building ahead of time failed: no op is selected. Fix: name one, or unset the DS_BUILD_… variables."
        raise NothingToBuildError(msg)
    names = ", ".join(dict.fromkeys(builder.NAME for builder in builders))
    found: dict[str, Order] = {}
    levels_here = [level for level in host_cpu_targets() if level in targets]
    for target in map(require_target, targets):
        needed = [one for one in builders if target != NATIVE or not _serves_here(one, levels_here)]
        recipes = [recipe for builder in needed for recipe in builder.recipes(target)]
        if not recipes:
            kind = "device code" if is_device_target(target) else "code of its own for this CPU"
            _logger.warning("%s: %s has no %s; nothing is built for it", target, names, kind)
        found |= {recipe.fingerprint(): Order(recipe.op, target, recipe) for recipe in recipes}
    if not found:
        msg = (
            f"building ahead of time failed: {names} has no code for {', '.join(targets)}. "
            f"Fix: name another op or target."
        )
        raise NothingToBuildError(msg)
    return list(found.values())


def _serves_here(builder: OpBuilder, levels: Sequence[str]) -> bool:
    """Return whether a build for one of these CPU levels makes one for this machine alone superfluous."""
    return any(builder.recipes(level) for level in levels if level in builder.levels())


def build_orders(wanted: Sequence[Order]) -> Iterator[BuildOutcome]:
    """Build the orders that are not in the cache, in parallel as cores and memory allow, and yield the results in order.

    When the caller is interrupted or closes the iterator, running compilers are ended and no new build starts.

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
    finally:  # Ctrl-C, a failure, or a closed iterator: end the builds that run in threads
        stop.set()
        pool.shutdown(cancel_futures=True)


def _follow(order: Order, cache: Cache, jobs: int | None, stop: threading.Event) -> BuildOutcome:
    started = time.perf_counter()
    found = find_built(order.recipe, cache)
    entry = found or ensure_built(order.recipe, cache, jobs or environment.build_jobs(), stop)
    return BuildOutcome(order, entry, found is None, time.perf_counter() - started)


def require_target_of_wheels(target: str) -> None:
    """Check that builds for a target can be in a wheel.

    Raises:
        ToolchainError: when they are for this machine only.
    """
    if target in (NATIVE, OPENCL_CPU):
        msg = (
            f"copying ops failed: builds for {target!r} are for this machine only. "
            f"Fix: name another target, such as --target x86-64-v3."
        )
        raise ToolchainError(msg)


def copy_entry(outcome: BuildOutcome, root: Path) -> Path:
    """Copy a build to its place in a wheel, and return the folder.

    Raises:
        ToolchainError: when the build is for this machine only.
    """
    order, entry = outcome.order, outcome.entry
    require_target_of_wheels(order.target)
    folder = folder_for(root, order.op, order.target)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as staging:
        copied = shutil.copyfile(entry.binary, Path(staging) / order.recipe.output)
        write_entry(folder, entry, copied)
    return folder
