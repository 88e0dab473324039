"""``AutogradBuilder``: records gradients in C++, by ``csrc/autograd``, which needs torch's C++ headers."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any

from .. import loading
from ..engine import environment
from ..engine.cache import open_cache
from ..engine.errors import BuildStoppedError, OpError, ToolchainError
from ..engine.targets import is_higher_cpu_level
from .one_torch import OneTorchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ..engine.build import Recipe

__all__ = ["AutogradBuilder", "built_beside", "recorder"]

_logger = logging.getLogger(__name__)


class AutogradBuilder(OneTorchBuilder):
    """Builds ``csrc/autograd`` for this machine and torch. Ops use it if it has been built."""

    NAME = "autograd"
    SOURCES = ("autograd/autograd.cpp",)

    def include_paths(self) -> list[str]:
        return []

    def cxx_args(self) -> list[str]:
        # the calls are all torch's; torch's headers then declare only the operators that are included
        return ["-O1", "-fvisibility=hidden", "-DAT_PER_OPERATOR_HEADERS"]

    def recipes(self, target: str) -> list[Recipe]:
        """Return the builds for a target; none for higher CPU levels, because it has no code for a level."""
        return [] if is_higher_cpu_level(target) else super().recipes(target)

    def namespaces(self) -> list[str]:
        return ["anyaccel_autograd"]

    def load(self, verbose: bool = False) -> Any:
        """Build the library if needed, and return its torch ops: ``record``.

        Raises:
            ToolchainError: when no compiler or no Python headers are found.
            BuildError: when the compiler fails.
        """
        return super().load(verbose)

    def load_binary(self, binary: Path) -> Any:
        import torch

        loading.load_torch_library(self.NAME, type(self), binary, self.namespaces())
        return torch.ops.anyaccel_autograd


@contextlib.contextmanager
def built_beside() -> Iterator[None]:
    """Build the library in a thread while the caller builds an op, unless it is prebuilt or ``DS_BUILD_AUTOGRAD`` is 0.

    Ops work without it, so a failure is only logged.
    """
    if not environment.build_switches().get(AutogradBuilder().build_var(), True):
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_build_if_possible, args=(stop,))
    thread.start()
    try:
        yield
        thread.join()
    except BaseException:  # also if it comes while this waits
        stop.set()
        thread.join()
        raise


def _build_if_possible(stop: threading.Event) -> None:
    from ..engine.build import ensure_built

    builder = AutogradBuilder()
    try:
        if not builder.is_built():
            ensure_built(builder.recipe, open_cache(environment.cache_dir()), environment.build_jobs(), stop)
    except BuildStoppedError as stopped:
        _logger.debug("%s", stopped)
    except ToolchainError as missing:
        _logger.info("gradients are recorded in Python: %s", missing)
    except OpError as error:
        _logger.warning("gradients are recorded in Python: %s", error)


def recorder() -> Callable[..., None] | None:
    """Return the function that records an op's gradients in C++, or None if it has not been built for this torch."""
    builder = AutogradBuilder()
    try:
        if not builder.is_built():
            return None
    except OpError:  # no build, and nothing to build it with
        return None
    try:
        record: Callable[..., None] = builder.load().record
    except OpError as error:
        _logger.warning("gradients are recorded in Python: %s", error)
        return None
    return record
