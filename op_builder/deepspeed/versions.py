"""The versions that deepspeed's builders query: of the installed toolkits, and of the torch that an op was compiled with."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.errors import OpLoadError, ToolchainError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "get_rocm_gpu_arch",
    "get_rocm_wavefront_size",
    "installed_cuda_version",
    "installed_rocm_version",
    "validate_torch_op_version",
    "validate_torch_version",
]


def installed_cuda_version(name: str = "") -> tuple[int, int]:
    """Return the major and minor version of the CUDA toolkit that compiles ops.

    Args:
        name: ignored.

    Raises:
        ToolchainError: when nvcc is not found.
    """
    from ..engine import environment
    from ..engine.cache import open_cache
    from ..engine.toolchains.cxx import choose_cxx
    from ..engine.toolchains.nvcc import choose_nvcc

    memory, path = open_cache(environment.cache_dir()).root, environment.search_path()
    host = choose_cxx(environment.cxx(), path, memory)
    major, minor = choose_nvcc(environment.cuda_home(), path, memory, host.program).release
    return major, minor


def validate_torch_version(torch_info: Mapping[str, str]) -> None:
    """Check that an op was compiled with the installed torch.

    Args:
        torch_info: the op's information; ``version`` is torch's major and minor version.

    Raises:
        OpLoadError: when the versions differ.
    """
    import torch

    _require_same("torch", torch_info["version"], torch.__version__)


def validate_torch_op_version(torch_info: Mapping[str, str]) -> None:
    """Check that an op was compiled with the CUDA or ROCm version of the installed torch.

    Args:
        torch_info: the op's information; ``cuda_version`` or ``hip_version`` is the major and minor version.

    Raises:
        OpLoadError: when the versions differ, or torch has neither.
    """
    import torch

    if torch.version.hip is not None:
        _require_same("HIP", torch_info["hip_version"], torch.version.hip)
    else:
        _require_same("CUDA", torch_info["cuda_version"], torch.version.cuda or "none")


def _require_same(what: str, compiled: str, here: str) -> None:
    short = ".".join(here.split(".")[:2])
    if compiled != short:
        msg = (
            f"loading an op failed: it was compiled with {what} {compiled}, and this is {short}. "
            f"Fix: reinstall deepspeed with this torch, or install a torch for {what} {compiled}."
        )
        raise OpLoadError(msg)


def installed_rocm_version() -> tuple[int, int]:
    """Return the major and minor version of ROCm; (0, 0) if torch is not built for it.

    Raises:
        ToolchainError: when torch is built for ROCm but ROCm is not found.
    """
    import torch

    if torch.version.hip is None:
        return 0, 0
    from torch.utils.cpp_extension import ROCM_HOME

    told = Path(ROCM_HOME or "/opt/rocm") / ".info" / "version"
    text = told.read_text(encoding="utf-8") if told.is_file() else torch.__version__.partition("rocm")[2]
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        msg = (
            f"finding ROCm failed: got {text!r} from {told} and torch {torch.__version__}; expected a version. "
            f"Fix: set ROCM_HOME to the folder of ROCm, such as /opt/rocm."
        )
        raise ToolchainError(msg)
    return int(found[1]), int(found[2])


def get_rocm_gpu_arch() -> str:
    """Return the architecture of the first AMD GPU, such as ``gfx90a``; empty if rocminfo finds none."""
    found = re.search(r"gfx\w+", _rocminfo())
    return found[0] if found else ""


def get_rocm_wavefront_size() -> str:
    """Return the first wavefront size that rocminfo prints; ``"32"`` without rocminfo."""
    found = re.search(r"Wavefront Size:\s+(\d+)", _rocminfo())
    return found[1] if found else "32"


def _rocminfo() -> str:
    usual = Path("/opt/rocm/bin/rocminfo")
    command = str(usual) if usual.is_file() else "rocminfo"
    try:
        return subprocess.run(  # noqa: S603
            [command], capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
