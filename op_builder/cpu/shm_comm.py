"""``ShmCommBuilder``: the process-group backend "shm", a C++ Python module that needs torch's c10d headers."""

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
    """Builds ``csrc/comm`` for this machine, Python and torch; for its use see :mod:`anyaccel.distributed`."""

    NAME = "shm_comm"
    SOURCES = ("comm/torch_side.cpp", "comm/core.cpp", "comm/reduce.cpp")

    def source_root(self) -> Path:
        return CSRC

    def include_paths(self) -> list[str]:
        return ["includes", "comm"]

    def cxx_args(self) -> list[str]:
        return [*super().cxx_args(), "-fvisibility=hidden"]

    def recipes(self, target: str) -> list[Recipe]:
        """Return the build for this machine only, as c10d's C++ interface differs between torch versions."""
        return super().recipes(target) if target == NATIVE else []

    def load(self, verbose: bool = False) -> Any:
        """Build the backend if needed, and return the module, whose ``create`` makes a process group.

        Raises:
            ToolchainError: when no compiler or no Python headers are found.
            BuildError: when the compiler fails.
        """
        return super().load(verbose)
