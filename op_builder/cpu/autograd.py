"""``AutogradBuilder``: records gradients in C++, by ``csrc/autograd``, which needs torch's C++ headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import loading
from ..builder import CPUOpBuilder
from ..engine.errors import OpError
from ..engine.targets import NATIVE
from ..op import CSRC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..engine.build import Recipe

__all__ = ["AutogradBuilder", "recorder"]


class AutogradBuilder(CPUOpBuilder):
    """Builds ``csrc/autograd`` for this machine and torch. Ops use it if it has been built; none builds it by itself."""

    NAME = "autograd"
    SOURCES = ("autograd/autograd.cpp",)

    def source_root(self) -> Path:
        return CSRC

    def include_paths(self) -> list[str]:
        return []

    def cxx_args(self) -> list[str]:
        return ["-O1", "-fvisibility=hidden"]  # the calls are all torch's

    def namespaces(self) -> list[str]:
        return ["anyaccel_autograd"]

    def recipes(self, target: str) -> list[Recipe]:
        """Return the build for this machine only, as torch's C++ interface differs between versions."""
        return super().recipes(target) if target == NATIVE else []

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
        record: Callable[..., None] = builder.load().record
    except OpError:
        return None
    return record
