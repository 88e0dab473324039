"""``ShmCommBuilder``: the process-group backend "shm", a C++ Python module that needs torch's c10d headers."""

from __future__ import annotations

from typing import Any

from .one_torch import OneTorchBuilder

__all__ = ["ShmCommBuilder"]


class ShmCommBuilder(OneTorchBuilder):
    """Builds ``csrc/comm`` for this machine, Python and torch; for its use see :mod:`anyaccel.distributed`."""

    NAME = "shm_comm"
    SOURCES = ("comm/torch_side.cpp", "comm/core.cpp", "comm/reduce.cpp")

    def include_paths(self) -> list[str]:
        return ["includes", "comm"]

    def cxx_args(self) -> list[str]:
        return [*super().cxx_args(), "-fvisibility=hidden"]

    def load(self, verbose: bool = False) -> Any:
        """Build the backend if needed, and return the module, whose ``create`` makes a process group.

        Raises:
            ToolchainError: when no compiler or no Python headers are found.
            BuildError: when the compiler fails.
        """
        return super().load(verbose)
