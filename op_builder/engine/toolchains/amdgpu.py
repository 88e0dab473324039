"""pip's ziglang as a compiler for AMD GPUs: its clang and linker support them, and ROCm is not needed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ToolchainError
from .cxx import zig_program
from .hiprtc import probe_hiprtc
from .probe import Memory, Probe, run_quietly, said_version

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .hiprtc import Hiprtc

__all__ = ["COMPILE", "LINK", "AmdgpuClang", "choose_amdgpu", "probe_amdgpu"]

_FIX = "pip install 'anyaccel[rocm]'"
_TARGET = "amdgcn"
COMPILE = (
    "clang", "-cc1", "-triple", "amdgcn-amd-amdhsa", "-aux-triple", "x86_64-unknown-linux-gnu", "-x", "hip", "-fcuda-is-device",
    "-nostdsysteminc", "-fdeclspec", "-fvisibility=hidden", "-fapply-global-visibility-to-externs",
    "-fno-threadsafe-statics", "-mrelocation-model", "pic", "-pic-level", "2",
)  # fmt: skip
"""The compiler without its driver, which would search for ROCm and for the building machine's headers."""
LINK = ("ld.lld", "-m", "elf64_amdgpu", "-shared", "--no-undefined")


@dataclass(frozen=True)
class AmdgpuClang:
    """ziglang's clang.

    Attributes:
        version: such as ``22.1.8``, with the beginning of the program's digest.
        zig: the program; empty if only the name of a result is needed.
    """

    version: str
    zig: str = ""
    name = "clang"

    def compiling(self, source: str, options: Sequence[str], output: str) -> tuple[str, ...]:
        """Return the command that compiles a source to an object file, or to assembly if ``output`` ends with ``.s``.

        The output's name distinguishes the file from those that it is linked with.
        """
        name, _, kind = output.partition(".")
        made = "-S" if kind == "s" else "-emit-obj"
        return (self.zig, *COMPILE, made, f"-cuid={name}", *options, source, "-o", output)

    def linking(self, objects: Sequence[str], output: str) -> tuple[str, ...]:
        """Return the command that links object files to a code object, which ROCm loads."""
        return (self.zig, *LINK, *objects, "-o", output)


def probe_amdgpu(memory: Path) -> Probe[AmdgpuClang]:
    """Search for ziglang, and check that its clang supports AMD GPUs."""
    name = "ziglang's clang"
    zig = zig_program()
    if zig is None:
        return Probe("amdgcn", name, None, "ziglang is not installed", _FIX)
    command = (zig, "clang")
    try:
        known = Memory(memory).recall(command, lambda: _try_out(command, memory))
    except (OSError, subprocess.SubprocessError) as error:
        return Probe("amdgcn", name, None, f"{' '.join(command)} fails: {error}", _FIX)
    return Probe("amdgcn", name, AmdgpuClang(f"{known.said}, {known.identity.digest[:12]}", zig), known.said)


def choose_amdgpu(memory: Path) -> AmdgpuClang | Hiprtc:
    """Return the compiler for AMD GPUs: ziglang's clang, whose code is checked (``tests/amdgpu``), otherwise hipRTC.

    Raises:
        ToolchainError: when both are rejected, with the reasons.
    """
    clang = probe_amdgpu(memory)
    if clang.tool is not None:
        return clang.tool
    hiprtc = probe_hiprtc()
    if hiprtc.tool is None:
        msg = f"choosing a compiler for AMD GPUs failed: {clang.detail}, and {hiprtc.detail}. Fix: {clang.fix}."
        raise ToolchainError(msg)
    return hiprtc.tool


def _try_out(command: tuple[str, ...], memory: Path) -> str:
    """Return clang's version, after checking that it supports AMD GPUs."""
    version = said_version(command, memory).splitlines()[0]
    if _TARGET not in run_quietly([*command, "-print-targets"], memory).stdout.split():
        msg = f"{version} was built without the target {_TARGET}"
        raise OSError(msg)
    return version.removeprefix("clang version ")
