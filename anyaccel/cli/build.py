"""``anyaccel build``: builds ops ahead of time, also for other machines."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path  # noqa: TC003  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..op_builder.ahead_of_time import (
    all_targets,
    build_orders,
    buildable,
    copy_entry,
    named_builders,
    orders,
    require_target_of_wheels,
    wheel_targets,
)
from ..op_builder.all_ops import every_builder
from ..op_builder.engine import environment
from ..op_builder.engine.cache import Cache, open_cache
from ..op_builder.engine.errors import CacheError, NothingToBuildError, OpError
from ..op_builder.engine.progress import watch
from ..op_builder.engine.targets import NATIVE
from ..op_builder.engine.toolchains.nvrtc import probe_nvrtc
from ..op_builder.hub import variants_of, write_variant
from ..op_builder.switches import switched_on
from ..op_builder.table import OPS
from .places import PATH, require_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..op_builder.ahead_of_time import BuildOutcome, Order
    from ..op_builder.builder import OpBuilder
    from ..op_builder.engine.progress import Progress

__all__ = ["EPILOG", "command"]

EPILOG = "Example: [bold]anyaccel build rms_norm --target sm_90 --target x86-64-v3[/]"

_logger = logging.getLogger(__name__)


def command(
    ops: Annotated[list[str] | None, typer.Argument(help="Names of ops or builders, such as rms_norm.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Build every op, or those that DS_BUILD_… selects.")
    ] = False,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="A target: native, x86-64-v3, sm_90, compute_120 (PTX), gfx942, spir64 (XPU), opencl-cpu …; repeatable.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Also copy the results into this folder, in the layout of a wheel.", **PATH)
    ] = None,
    hub: Annotated[
        Path | None,
        typer.Option(
            help="Write kernels into this folder, which Hugging Face's kernels loads without anyaccel.", **PATH
        ),
    ] = None,
    rocm: Annotated[
        list[str] | None,
        typer.Option(help="With --hub, a release of ROCm for which AMD GPUs' kernels are named: 7.1. Repeatable."),
    ] = None,
) -> None:
    """Build ops into the cache ahead of time, also for GPUs and CPUs that this machine does not have.

    Without a target, builds the named ops for this machine; with --all, for this machine, the CPU levels, SYCL on the CPU
    and NVIDIA GPUs; with --output, for the targets of a wheel.
    With --hub, builds the named ops, or all that have functions, for the targets of a wheel unless --target names others.
    """
    _require_one_of(ops or [], everything, output, hub, rocm)
    if hub is not None:
        _for_the_hub(hub, ops or [], target or wheel_targets(), rocm or [])
        return
    wanted = target or (wheel_targets() if output else all_targets() if everything else [NATIVE])
    _require_place(output, wanted)
    console = Console()
    builders = _every_selected_op() if everything else named_builders(ops or [])
    table = Table("op", "target", "", "seconds", "KiB", title=_title(), title_justify="left")
    with _shown_progress(console):
        for outcome in build_orders(_selected(builders, wanted) if everything else orders(builders, wanted)):
            _add(table, outcome)
            if output is not None:
                copy_entry(outcome, output)
            else:
                _require_kept(outcome)
    console.print(table)
    nvrtc = probe_nvrtc()
    if not target and nvrtc.tool is None:
        console.print(f"No CUDA device code: {escape(nvrtc.detail)}. Fix: {escape(nvrtc.fix)}", soft_wrap=True)


def _selected(builders: list[OpBuilder], targets: list[str]) -> list[Order]:
    """Return what to build of all: nothing if deepspeed's variables, set for deepspeed, select only ops without code here."""
    try:
        return orders(builders, targets)
    except NothingToBuildError:
        if not environment.build_switches():
            raise
        _logger.warning("the DS_BUILD_… variables select no op that anyaccel builds for %s", ", ".join(targets))
        return []


def _every_selected_op() -> list[OpBuilder]:
    return buildable(switched_on(every_builder(), environment.build_switches()))


def _require_place(output: Path | None, targets: list[str]) -> None:
    """Fail before anything is built, if there is no place for it."""
    if output is None:
        _wanted_cache()
        return
    require_folder(output, "--output")
    for target in targets:
        require_target_of_wheels(target)


def _require_one_of(
    ops: list[str], everything: bool, output: Path | None, hub: Path | None, rocm: list[str] | None
) -> None:
    got = "both --all and the names of ops" if everything and ops else ""
    if hub is not None and output is not None:
        got = "both --hub and --output"
    elif hub is None and not (everything or ops):
        got = "no ops to build"
    if rocm and hub is None:
        got = "--rocm without --hub"
    if got:
        msg = f"got {got}. Fix: pass names, as in 'anyaccel build rms_norm', or --all for every op; and one of --hub and --output"
        raise typer.BadParameter(msg)


def _for_the_hub(root: Path, names: list[str], targets: list[str], rocm: list[str]) -> None:
    named = {builder.NAME for builder in named_builders(names)}
    ops = [op for op in OPS if (op.name in named if names else op.functions)]
    console = Console()
    table = Table("kernel", "variant", "MiB", title=f"Kernels in {escape(str(root))}", title_justify="left")
    with _shown_progress(console):
        variants = [variant for op in ops for variant in variants_of(op, targets, rocm)]
        if not variants:
            msg = (
                f"building kernels for the Hub failed: {', '.join(sorted(named))} has no code for {', '.join(targets)}. "
                f"Fix: name another op or target."
            )
            raise OpError(msg)
        wanted = {order.recipe.fingerprint(): order for variant in variants for order in variant.orders()}
        require_folder(root, "--hub")  # before anything is built
        built = {outcome.order.recipe.fingerprint(): outcome.entry for outcome in build_orders([*wanted.values()])}
        for variant in variants:
            place = write_variant(variant, built, root)
            size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
            table.add_row(place.parent.parent.name, variant.name, f"{size / 2**20:.1f}")
    console.print(table)
    example = root.absolute() / variants[0].kernel_name()
    console.print(f"Load one: kernels.get_local_kernel(Path({str(example)!r}))", soft_wrap=True, markup=False)


@contextlib.contextmanager
def _shown_progress(console: Console) -> Iterator[None]:
    with console.status("looking for compilers") as status:

        def show(progress: Progress) -> None:
            status.update(escape(str(progress)))

        with watch(show):
            yield


def _require_kept(outcome: BuildOutcome) -> None:
    """Check that the result is in the user's cache and not in a temporary one.

    Raises:
        CacheError: when the build went to a temporary cache.
    """
    wanted = _wanted_cache()
    if not outcome.entry.binary.is_relative_to(wanted):
        msg = (
            f"building ahead of time failed: the cache at {wanted} cannot store the result. "
            f"Fix: set ANYACCEL_CACHE_DIR to a writable directory with free space."
        )
        raise CacheError(msg)


def _wanted_cache() -> Path:
    return environment.cache_dir() or Cache.default_root()


def _title() -> str:
    return f"Built ahead of time (cache: {escape(str(open_cache(environment.cache_dir()).root))})"


def _add(table: Table, outcome: BuildOutcome) -> None:
    kibibytes = outcome.entry.binary.stat().st_size / 1024
    order = outcome.order
    table.add_row(order.op, order.target, _state(outcome), f"{outcome.seconds:.1f}", f"{kibibytes:.0f}")


def _state(outcome: BuildOutcome) -> str:
    return "built" if outcome.was_built else "was there"
