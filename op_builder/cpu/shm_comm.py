"""``ShmCommBuilder``: the process-group backend "shm", a Python module in C++ that torch's c10d headers are needed for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..builder import CPUOpBuilder
from ..engine.targets import NATIVE
from ..op import CSRC

if TYPE_CHECKING:
    from pathlib import Path

    from ..engine.build import Recipe

__all__ = ["ShmCommBuilder"]


class ShmCommBuilder(CPUOpBuilder):
    """Builds ``csrc/comm`` for this machine, Python and torch; see :mod:`anyaccel.distributed` for its use."""

    NAME = "shm_comm"
    SOURCES = ("comm/torch_side.cpp", "comm/core.cpp", "comm/reduce.cpp")

    def source_root(self) -> Path:
        return CSRC

    def include_paths(self) -> list[str]:
        return ["includes", "comm"]

    def cxx_args(self) -> list[str]:
        return [*super().cxx_args(), "-fvisibility=hidden"]

    def recipes(self, target: str) -> list[Recipe]:
        """Return the build for this machine; there is no other, as c10d's C++ interface differs between torches."""
        return super().recipes(target) if target == NATIVE else []

    def load(self, verbose: bool = False) -> Any:
        """Build the backend where needed, and return the module whose ``create`` makes it.

        Raises:
            ToolchainError: when no compiler, or no header of Python, is found.
            BuildError: when the compiler fails.
        """
        return super().load(verbose)
