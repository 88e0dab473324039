"""The base of the builders whose sources use torch's C++ API, which differs between its versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import CPUOpBuilder
from ..engine import prebuilt
from ..engine.targets import NATIVE, host_cpu_targets, wheel_platform
from ..op import CSRC

if TYPE_CHECKING:
    from pathlib import Path

    from ..engine.build import Recipe
    from ..engine.trace import Trace

__all__ = ["OneTorchBuilder"]


class OneTorchBuilder(CPUOpBuilder):
    """Builds sources of this project for this torch and Python, and for no other."""

    def source_root(self) -> Path:
        return CSRC

    def recipes(self, target: str) -> list[Recipe]:
        """Return the builds for a target; none for the platform of a release, whose wheel serves every torch."""
        return super().recipes(target) if target == NATIVE or wheel_platform() is None else []

    def levels(self) -> list[str]:
        return host_cpu_targets()

    def prebuilt(self, trace: Trace) -> Path | None:
        """Return the library of a wheel that was built for this torch and Python, or None; the trace records why not.

        A wheel may well be installed beside another torch.
        """

        def key_for(target: str) -> str:
            return self.recipe_for(target, any_compiler=True).key()

        return prebuilt.find_library(self.name, key_for, trace, is_expected=False)
