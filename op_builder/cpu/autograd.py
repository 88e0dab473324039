"""``AutogradBuilder``: records gradients in C++, by ``csrc/autograd``, which needs torch's C++ headers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from .. import loading
from ..engine.errors import OpError
from .one_torch import OneTorchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["AutogradBuilder", "recorder"]

_logger = logging.getLogger(__name__)


class AutogradBuilder(OneTorchBuilder):
    """Builds ``csrc/autograd`` for this machine and torch. Ops use it if it has been built; none builds it by itself."""

    NAME = "autograd"
    SOURCES = ("autograd/autograd.cpp",)

    def include_paths(self) -> list[str]:
        return []

    def cxx_args(self) -> list[str]:
        return ["-O1", "-fvisibility=hidden"]  # the calls are all torch's

    def namespaces(self) -> list[str]:
        return ["anyaccel_autograd"]

    def load(self, verbose: bool = False) -> Any:
        """Build the library if needed, and return its torch ops: ``record``.

        Raises:
            ToolchainError: when no compiler or no Python headers are found.
            BuildError: when the compiler fails.
        """
        return super().load(verbose)

    def prebuilt(self, trace: Any) -> Any:
        """Return None: a wheel is for every torch."""
        return None

    def load_binary(self, binary: Path) -> Any:
        import torch

        loading.load_torch_library(self.NAME, type(self), binary, self.namespaces())
        return torch.ops.anyaccel_autograd


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
