"""The base of the builders whose sources use torch's C++ API, which differs between its versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import CPUOpBuilder
from ..engine.targets import NATIVE
from ..op import CSRC

if TYPE_CHECKING:
    from pathlib import Path

    from ..engine.build import Recipe

__all__ = ["OneTorchBuilder"]


class OneTorchBuilder(CPUOpBuilder):
    """Builds sources of this project for this machine and torch, and for no other."""

    def source_root(self) -> Path:
        return CSRC

    def recipes(self, target: str) -> list[Recipe]:
        """Return the build for this machine; for any other target there is none."""
        return super().recipes(target) if target == NATIVE else []
