"""The recipe for an op's CUDA device code, with or without a GPU, and the target for a GPU and its driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.device_code import DeviceCodeRecipe
from ..engine.toolchains.nvrtc import Nvrtc, choose_nvrtc
from ..op import CSRC
from .compatibility import choose_target, driver_version, release_of

if TYPE_CHECKING:
    from ..op import Op

__all__ = ["device_code_recipe", "target_here"]

_NVRTC_OPTIONS = ("-std=c++20", "-default-device", "--extra-device-vectorization")
_INCLUDE_DIRS = (CSRC / "includes", CSRC / "runtime", CSRC / "device_std")


def device_code_recipe(op: Op, target: str, *, any_compiler: bool = False) -> DeviceCodeRecipe:
    """Return the recipe for an op's device code for a GPU architecture.

    Args:
        op: the op.
        target: ``sm_90`` for machine code, ``compute_120`` for PTX.
        any_compiler: do not search for a compiler; the recipe then only names its result.

    Raises:
        ToolchainError: when NVRTC is not found.
    """
    return DeviceCodeRecipe(
        op=op.name,
        source=CSRC / "runtime" / "kernels.cu",
        include_dirs=_INCLUDE_DIRS,
        target=target,
        compiler=Nvrtc("any") if any_compiler else choose_nvrtc(),
        options=(*_NVRTC_OPTIONS, op.header_macro(), f"-arch={target}"),
        output=f"{op.name}.{'cubin' if target.startswith('sm_') else 'ptx'}",
        kernels=tuple(f"run<{instance}>" for instance in op.kernels_for("cuda")),
    )


def target_here(capability: tuple[int, int]) -> str:
    """Return the target for which NVRTC must compile, for a GPU of this machine and its driver.

    Raises:
        ToolchainError: when NVRTC is not found, or no code from it works on the GPU and its driver.
    """
    nvrtc = choose_nvrtc()
    return choose_target(capability, nvrtc.architectures(), release_of(nvrtc.version), driver_version())
