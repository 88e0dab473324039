"""What this project's own ops share: the stable ABI, sources in ``csrc``, and binaries that a wheel may bring along."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from . import prebuilt
from .builder import OpBuilder
from .targets import is_cuda_target

if TYPE_CHECKING:
    from .engine.build import Recipe
    from .engine.device_code import DeviceCodeRecipe
    from .engine.trace import Trace

__all__ = ["CSRC", "BuiltInOp"]

CSRC = Path(__file__).resolve().parents[1] / "csrc"
"""The C++ and CUDA sources, beside this package in a checkout and inside it in a wheel."""

_NVRTC_OPTIONS = ("-std=c++20", "-default-device", "--extra-device-vectorization")


class BuiltInOp(OpBuilder):
    """An op of this project.

    Attributes:
        SOURCES: of the host, relative to ``csrc``.
        CUDA_SOURCE: the device code for CUDA, relative to ``csrc``; empty when there is none.
        SYCL_SOURCE: the device code for SYCL, relative to ``kernels/sycl``; empty when there is none.
        KERNELS: the kernels' instances to compile device code for, such as ``"RmsNormForward<float, float>"``.
    """

    STABLE_ABI = True
    CUDA_SOURCE: ClassVar[str] = ""
    SYCL_SOURCE: ClassVar[str] = ""
    KERNELS: ClassVar[tuple[str, ...]] = ()

    def absolute_name(self) -> str:
        return f"anyaccel._C.{self.name}"

    def source_root(self) -> Path:
        return CSRC

    def include_paths(self) -> list[str]:
        return ["includes", "stable"]

    def prebuilt(self, trace: Trace) -> Path | None:
        """Return the library that a wheel brought for this machine, or None; the trace says why not."""
        return prebuilt.find_library(self, trace)

    def recipes(self, target: str) -> list[Recipe]:
        if not is_cuda_target(target):
            return [self.recipe_for(target)] if self.SOURCES else []
        return [self.device_code_recipe(target)] if self.CUDA_SOURCE else []

    def device_code_recipe(self, target: str, *, any_compiler: bool = False) -> DeviceCodeRecipe:
        """Return everything that decides the device code for a GPU architecture.

        Args:
            target: ``sm_90`` for machine code, ``compute_120`` for PTX.
            any_compiler: look for no compiler: the recipe then only names its result.

        Raises:
            ToolchainError: when there is no NVRTC.
        """
        from .engine.device_code import DeviceCodeRecipe
        from .engine.toolchains.nvrtc import Nvrtc, choose_nvrtc

        source = CSRC / self.CUDA_SOURCE
        include_dirs = (CSRC / "includes", CSRC / "runtime", source.parent, CSRC / "device_std")
        nvrtc = Nvrtc("any") if any_compiler else choose_nvrtc()
        kernels = tuple(f"run<{instance}>" for instance in self.KERNELS)
        output = f"{self.name}.{'cubin' if target.startswith('sm_') else 'ptx'}"
        options = (*_NVRTC_OPTIONS, f"-arch={target}")
        return DeviceCodeRecipe(self.name, source, include_dirs, target, nvrtc, options, output, kernels)

    def namespaces(self) -> list[str]:
        """Return nothing: they share the namespace ``anyaccel``, each with fragments of it."""
        return []

    @abc.abstractmethod
    def functions(self) -> Any:
        """Return the object whose attributes are the op's functions; called once its library is loaded."""
