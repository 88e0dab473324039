"""SYCL: Intel's DPC++ run-time compiler for this project's kernels, and icpx for third parties' sources."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..errors import ToolchainError
from .cxx import TELL_PROGRAMS, CxxCompiler
from .probe import Memory, Probe, said_version

__all__ = ["DpcppRuntime", "choose_dpcpp", "choose_icpx", "probe_dpcpp", "probe_icpx"]

_FIX = "pip install 'anyaccel[sycl]'"
_ICPX_FIX = "install Intel's oneAPI DPC++ compiler, and put icpx into PATH"


@dataclass(frozen=True)
class DpcppRuntime:
    """libsycl with its run-time compiler, as installed by pip.

    Attributes:
        version: the version of ``intel-sycl-rt``.
        libsycl: the shared library.
        include_dir: the directory of ``sycl/sycl.hpp``, for compiling host code.
    """

    version: str
    libsycl: Path
    include_dir: Path

    @property
    def is_cut_off(self) -> bool:
        """Whether Intel's OpenCL driver for the CPU cannot find its own files: it reads its path up to the first space."""
        return any(character.isspace() for character in str(self.libsycl.parent))


def probe_dpcpp() -> Probe[DpcppRuntime]:
    """Look for pip's DPC++ runtime; loads nothing, so no device is touched."""
    name = "dpcpp-cpp-rt"
    try:
        package = metadata.distribution("intel-sycl-rt")
    except metadata.PackageNotFoundError:
        return Probe("DPC++", name, None, "intel-sycl-rt is not installed", _FIX)
    record = package.read_text("RECORD") or ""  # as text: it has thousands of headers
    libsycl = _located(package, record, r"libsycl\.so\.\d+")
    compiler = _located(package, record, r"libsycl-jit\.so")
    header = _located(package, record, r"sycl/sycl\.hpp")
    missing = [
        what
        for what, file in (("libsycl.so", libsycl), ("libsycl-jit.so", compiler), ("sycl/sycl.hpp", header))
        if file is None or not file.is_file()
    ]
    if libsycl is None or header is None or missing:
        return Probe(
            "DPC++", name, None, f"intel-sycl-rt {package.version} does not include {', '.join(missing)}", _FIX
        )
    runtime = DpcppRuntime(package.version, libsycl, header.parents[1])
    note = f"; not on the CPU, as there is a space in {libsycl.parent}" if runtime.is_cut_off else ""
    return Probe("DPC++", name, runtime, f"{package.version}, {libsycl.name}{note}")


def choose_dpcpp() -> DpcppRuntime:
    """Return pip's DPC++ runtime.

    Raises:
        ToolchainError: when it cannot be used, with the reason.
    """
    probe = probe_dpcpp()
    if probe.tool is None:
        msg = f"choosing DPC++ failed: {probe.detail}. Fix: {_FIX}."
        raise ToolchainError(msg)
    return probe.tool


def probe_icpx(path: str, memory: Path) -> Probe[CxxCompiler]:
    """Look for the ahead-of-time compiler, which only third parties' SYCL sources need."""
    found = shutil.which("icpx", path=path)
    if found is None:
        return Probe("icpx", "icpx in PATH", None, "not found", _ICPX_FIX)
    try:
        known = Memory(memory).recall([found], lambda: said_version([found], memory).splitlines()[0], TELL_PROGRAMS)
    except (OSError, subprocess.SubprocessError) as error:
        return Probe("icpx", "icpx in PATH", None, f"{found} --version fails: {error}", _ICPX_FIX)
    return Probe("icpx", "icpx in PATH", CxxCompiler((found,), known.said, known.identity), known.said)


def choose_icpx(path: str, memory: Path) -> CxxCompiler:
    """Return icpx.

    Raises:
        ToolchainError: when it cannot be used, with the reason.
    """
    probe = probe_icpx(path, memory)
    if probe.tool is None:
        msg = f"choosing a SYCL compiler failed: {probe.name}: {probe.detail}. Fix: {_ICPX_FIX}."
        raise ToolchainError(msg)
    return probe.tool


def _located(package: metadata.Distribution, record: str, name: str) -> Path | None:
    """Return a file that a package has installed; the end of its path is given as a regular expression."""
    found = re.search(rf"/{name},", record)  # begins with fixed text: ten times as fast as a pattern for the whole line
    if found is None:
        return None
    path = record[record.rfind("\n", 0, found.start()) + 1 : found.end() - 1]
    return Path(str(package.locate_file(path))).resolve()
