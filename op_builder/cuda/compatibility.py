"""Which code a driver accepts: machine code from its own CUDA generation, PTX from its own CUDA release, and anything older.

The rules are NVIDIA's:

- Machine code of a CUDA release runs on every driver of the same or a newer major version ("CUDA Compatibility", section
  Minor Version Compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html).
- PTX is compiled by the driver, which must be as new as the compiler that wrote it; otherwise it returns
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION ("CUDA C++ Best Practices Guide", section Dynamic Code Generation, which advises machine
  code for this reason, https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#dynamic-code-generation).
- Machine code runs on its own compute capability and on later ones of the same major number; PTX runs on its own and every
  later one ("CUDA C++ Programming Guide", sections Binary Compatibility and PTX Compatibility).

A forward-compatibility package (cuda-compat) installs a newer driver library, which reports its own version: nothing here
needs to handle it.
"""

from __future__ import annotations

import ctypes
import functools
import re
from typing import TYPE_CHECKING

from ..engine.errors import ToolchainError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["choose_target", "driver_refusal", "driver_version", "release_of"]

Release = tuple[int, int]

OLDEST_DRIVER: Release = (12, 0)
"""The runtime calls functions that CUDA 12.0 introduced, such as ``cuLibraryLoadData``."""
_BRANCHES = {12: 525, 13: 580}
"""The oldest driver branch for each CUDA major version; from the first document above."""
_EXTRAS = {12: "anyaccel[cuda12]", 13: "anyaccel[cuda]"}
"""The extra that installs NVRTC for each CUDA major version."""
_CAPABILITY_OF_NEXT = 10  # sm_90 is compute capability 9.0


@functools.cache
def driver_version() -> Release | None:
    """Return the CUDA release of NVIDIA's driver, such as ``(12, 8)``; None where there is no driver.

    The query initialises nothing: it creates no context, and a forked child can still use CUDA.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        version = ctypes.c_int()
        if driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return version.value // 1000, version.value % 1000 // 10


def release_of(version: str) -> Release:
    """Return the CUDA release of a version: ``(13, 0)`` for ``NVRTC 13.0.88`` or ``13.0.88``.

    Raises:
        ValueError: when the text is not a version.
    """
    found = re.search(r"(\d+)\.(\d+)", version)
    if found is None:
        msg = f"reading a compiler's version failed: got {version!r}; expected one such as 13.0. Fix: reinstall the compiler."
        raise ValueError(msg)
    return int(found[1]), int(found[2])


def driver_refusal(target: str, compiler: str, driver: Release | None) -> str:
    """Return why a driver rejects a compiler's code; empty when it accepts it, or there is no driver.

    Args:
        target: ``sm_90`` for machine code, ``compute_90`` for PTX.
        compiler: its version, such as ``NVRTC 13.0.88``.
        driver: the CUDA release of the driver.
    """
    try:
        release = release_of(compiler)
    except ValueError:
        return f"its compiler is {compiler!r}, which is not a version"
    return _refusal(target, release, driver) if driver is not None else ""


def _refusal(target: str, compiler: Release, driver: Release) -> str:
    is_ptx = target.startswith("compute_")
    if driver >= compiler or (driver[0] == compiler[0] and not is_ptx):
        return ""
    needed = _dotted(compiler) if is_ptx else f"{compiler[0]}.0"
    return (
        f"the driver is for CUDA {_dotted(driver)}, and {'PTX' if is_ptx else 'machine code'} from a compiler of CUDA "
        f"{_dotted(compiler)} needs a driver for CUDA {needed} or newer"
    )


def choose_target(capability: Release, architectures: Sequence[int], compiler: Release, driver: Release | None) -> str:
    """Return the target to compile for, such that the GPU runs the code and the driver accepts it.

    Machine code for the GPU itself if the compiler supports it; otherwise for the nearest older GPU of the same generation;
    otherwise, if the GPU is newer than the compiler, PTX for the newest architecture that the compiler supports.

    Args:
        capability: the GPU's compute capability, such as ``(9, 0)``.
        architectures: the SM numbers that the compiler supports, such as 80 and 90.
        compiler: the compiler's CUDA release.
        driver: the driver's CUDA release; None if unknown, which means that it accepts everything.

    Raises:
        ToolchainError: when the GPU or the driver is too old for the compiler; the message says what to install.
    """
    gpu = 10 * capability[0] + capability[1]
    older = [number for number in architectures if number <= gpu]
    if not older:
        oldest = _dotted(divmod(min(architectures), _CAPABILITY_OF_NEXT))
        msg = (
            f"choosing the code for a GPU of compute capability {_dotted(capability)} failed: NVRTC of CUDA "
            f"{_dotted(compiler)} compiles for {oldest} and newer only. "
            f"Fix: {_install(compiler[0] - 1)}."
        )
        raise ToolchainError(msg)
    nearest = max(older)
    is_of_generation = nearest // _CAPABILITY_OF_NEXT == capability[0]
    target = f"{'sm' if is_of_generation else 'compute'}_{nearest}"
    problem = _refusal(target, compiler, driver) if driver is not None else ""
    if driver is not None and problem:
        msg = (
            f"choosing the code for a GPU of compute capability {_dotted(capability)} failed: {problem}. "
            f"Fix: {_fix(is_of_generation, compiler, driver)}."
        )
        raise ToolchainError(msg)
    return target


def _fix(is_machine_code: bool, compiler: Release, driver: Release) -> str:
    branch = f" (branch {_BRANCHES[compiler[0]]} or newer)" if is_machine_code and compiler[0] in _BRANCHES else ""
    update = f"update NVIDIA's driver{branch}"
    if driver < OLDEST_DRIVER:
        return update
    newest = "" if is_machine_code else " in its newest version"  # the newest version may make machine code for the GPU
    return f"{update}, or {_install(driver[0])}{newest}"


def _install(major: int) -> str:
    extra = _EXTRAS.get(major)
    return f"pip install '{extra}'" if extra is not None else f"install NVRTC and cuda-bindings of CUDA {major}"


def _dotted(release: Release) -> str:
    return f"{release[0]}.{release[1]}"
