"""The targets of ahead-of-time builds: CPU levels and GPU architectures, by the names that compilers use."""

from __future__ import annotations

import os
import platform
import re
from typing import TYPE_CHECKING, NamedTuple

from . import environment
from .errors import OpError, SettingError
from .fingerprint import cpu_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CPU_TARGETS",
    "CUDA_TARGETS",
    "HIP_TARGETS",
    "NATIVE",
    "OPENCL_CPU",
    "SPIRV",
    "Platform",
    "cuda_targets_for",
    "host_cpu_targets",
    "is_cuda_target",
    "is_device_target",
    "is_higher_cpu_level",
    "is_hip_target",
    "is_of_platform_here",
    "march",
    "require_target",
    "wave_lanes",
    "wheel_cpu_targets",
    "wheel_platform",
]

NATIVE = "native"
"""This machine's CPU, with all its features."""

_V2 = ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")
_V3 = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

CPU_TARGETS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64": ()},
    "aarch64": {"armv8.2-a": ("asimddp", "atomics"), "armv8-a": ()},
}
"""The targets of each architecture, best first, each with the CPU flags that its code needs."""

CUDA_TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120", "compute_120")
"""The GPU targets of a wheel: machine code for four GPU generations, and PTX of the newest one for later GPUs."""

HIP_TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
"""AMD GPUs that a wheel supports: Instinct MI200, MI300 and MI350, Radeon RX 7900 and RX 9070. Code runs on one GPU only."""

OPENCL_CPU = "opencl-cpu"
"""SYCL kernels for this machine's CPU, compiled by Intel's OpenCL. They depend on its version, so no wheel carries them."""

SPIRV = "spir64"
"""Intel's GPUs: SPIR-V, DPC++'s name for which is this, and which a GPU's driver compiles."""

_CUDA = r"(sm|compute)_(\d{2,3})[af]?"
_HIP = r"gfx(9|1[0-2])[0-9a-f]{2}"
_MANYLINUX = r"manylinux_(\d+)_(\d+)_(\w+)"


class Platform(NamedTuple):
    """The platform of a wheel.

    Attributes:
        machine: the architecture, as ``platform.machine()`` names it.
        glibc: the oldest version of the C library, such as ``2.28``.
    """

    machine: str
    glibc: str

    @property
    def triple(self) -> str:
        """The name of the platform for ziglang."""
        return f"{self.machine}-linux-gnu.{self.glibc}"

    @property
    def serves_here(self) -> bool:
        """Whether this machine runs what is built for it: it has the architecture, and a C library that is not older."""
        try:
            name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        except ValueError:  # musl's
            return False
        return self.is_here and name == "glibc" and _numbers(self.glibc) <= _numbers(version)

    @property
    def is_here(self) -> bool:
        """Whether it has this machine's architecture."""
        return self.machine == platform.machine()


def _numbers(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)]


def is_of_platform_here(command: Sequence[str]) -> bool:
    """Return whether a compiler was told to build for a platform, ``-target x86_64-linux-gnu.2.28``, that serves here."""
    found = re.fullmatch(r"-target (\w+)-linux-gnu\.([\d.]+)", " ".join(command))
    return found is not None and Platform(found[1], found[2]).serves_here


def wheel_platform() -> Platform | None:
    """Return the platform in ``ANYACCEL_PLATFORM``; None when ops are built for this machine's platform.

    Raises:
        SettingError: when it is not a platform that ops can be built for.
    """
    tag = environment.wheel_platform()
    if not tag:
        return None
    found = re.fullmatch(_MANYLINUX, tag)
    if found is None or found[3] not in CPU_TARGETS:
        msg = (
            f"reading ANYACCEL_PLATFORM failed: got {tag!r}; expected manylinux_<major>_<minor>_<machine>, "
            f"of {' or '.join(CPU_TARGETS)}. Fix: unset it, or use a tag such as manylinux_2_28_aarch64."
        )
        raise SettingError(msg)
    return Platform(found[3], f"{found[1]}.{found[2]}")


def wheel_cpu_targets() -> list[str]:
    """Return the CPU targets of the platform of ahead-of-time builds, best first."""
    chosen = wheel_platform()
    return list(CPU_TARGETS.get(chosen.machine if chosen else platform.machine(), {}))


def is_higher_cpu_level(target: str) -> bool:
    """Return whether a target is a level of CPUs above the lowest of its architecture."""
    return any(target in [*levels][:-1] for levels in CPU_TARGETS.values())


def host_cpu_targets() -> list[str]:
    """Return the targets whose code runs on this machine, best first."""
    levels = CPU_TARGETS.get(platform.machine(), {})
    return [target for target, needed in levels.items() if cpu_flags().issuperset(needed)]


def cuda_targets_for(major: int, minor: int) -> list[str]:
    """Return the targets whose code runs on a GPU, best first.

    Machine code runs on GPUs of its generation with the same or a higher number; the driver compiles PTX for later ones too.
    """

    def runs(target: str) -> bool:
        kind, number = target.split("_")
        built_for = divmod(int(number), 10)
        return built_for <= (major, minor) and (kind == "compute" or built_for[0] == major)

    return [target for target in CUDA_TARGETS if runs(target)]


def is_cuda_target(target: str) -> bool:
    """Return whether a target is an NVIDIA GPU architecture."""
    return re.fullmatch(_CUDA, target) is not None


def is_hip_target(target: str) -> bool:
    """Return whether a target is a GPU architecture of AMD's."""
    return re.fullmatch(_HIP, target) is not None


def is_device_target(target: str) -> bool:
    """Return whether a target's code is a device's: a GPU architecture of any vendor's, SPIR-V, or SYCL's OpenCL device."""
    return is_cuda_target(target) or is_hip_target(target) or target in (OPENCL_CPU, SPIRV)


def wave_lanes(target: str) -> int:
    """Return how many lanes a wave of an AMD GPU has: 64 on gfx9, as Instinct's GPUs are, and 32 on Radeon's since gfx10."""
    return 64 if target.startswith("gfx9") else 32


def march(target: str) -> str:
    """Return the compiler's flag for a CPU target."""
    return f"-march={target}"


def require_target(target: str) -> str:
    """Return a target after checking that it exists.

    Raises:
        OpError: when it does not, listing the choices.
    """
    cpu = wheel_cpu_targets()
    if target == NATIVE or target in cpu or is_device_target(target):
        return target
    choices = ", ".join([NATIVE, *cpu, *CUDA_TARGETS, *HIP_TARGETS, SPIRV, OPENCL_CPU])
    msg = (
        f"choosing the target failed: got {target!r}; expected one of: {choices}. "
        f"Fix: pass one of these; sm_<number>, compute_<number> and gfx<number> may name any GPU that the compiler knows."
    )
    raise OpError(msg)
