"""What decides an op's CUDA device code, whether there is a GPU or not, and which code a GPU and its driver take."""

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
    """Return everything that decides an op's device code for a GPU architecture.

    Args:
        op: the op.
        target: ``sm_90`` for machine code, ``compute_120`` for PTX.
        any_compiler: look for no compiler: the recipe then only names its result.

    Raises:
        ToolchainError: when there is no NVRTC.
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
    """Return what NVRTC is to compile for a GPU of this machine, so that its driver takes the result.

    Raises:
        ToolchainError: when there is no NVRTC, or it makes nothing that the GPU runs and the driver takes.
    """
    nvrtc = choose_nvrtc()
    return choose_target(capability, nvrtc.architectures(), release_of(nvrtc.version), driver_version())
