"""Finds nvcc: in ``CUDA_HOME``, ``PATH``, ``/usr/local/cuda``, otherwise pip's ``nvidia-cuda-nvcc``.

Only third parties' ``.cu`` sources need it; NVRTC compiles this project's device code.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import TemporaryDirectoryError, ToolchainError
from ..scratch import TEMPORARY_FIX, in_scratch_folder
from .identity import Identity
from .probe import Memory, Probe, run_quietly, said_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["CudaToolkit", "choose_nvcc", "pip_home", "probe_nvcc"]

_FIX = "pip install 'anyaccel[nvcc]'"
_MATCHING = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")
_PROGRAMS = ("cicc", "cudafe++", "fatbinary", "nvcc.profile", "nvlink", "ptxas")
_TRIAL = "#include <cuda_fp16.h>\n#include <nv/target>\n__global__ void trial(__half* x) { *x = __float2half(1.0f); }\n"
_CUDART_VERSION = re.compile(r"#define\s+CUDART_VERSION\s+(\d+)")
_RELEASE = re.compile(r"release (\d+)\.(\d+), V([\d.]+)")


@dataclass(frozen=True)
class CudaToolkit:
    """A CUDA toolkit that can compile, complete or assembled from pip packages.

    Attributes:
        nvcc: the compiler.
        version: its version, such as ``13.0.88``.
        include_dirs: the directories of its headers.
        library_dirs: the directories of its libraries.
        identity: the programs that it consists of.
    """

    nvcc: Path
    version: str
    include_dirs: tuple[Path, ...]
    library_dirs: tuple[Path, ...]
    identity: Identity = field(default_factory=Identity)

    @property
    def release(self) -> tuple[int, int]:
        """Return the major and minor version."""
        major, minor, *_ = map(int, self.version.split("."))
        return major, minor


def probe_nvcc(cuda_home: Path | None, path: str, memory: Path, host: str | None) -> list[Probe[CudaToolkit]]:
    """Look for every nvcc, in order of preference.

    Args:
        cuda_home: the value of ``CUDA_HOME``; if given, only this toolkit is tried.
        path: the directories to search, as in ``PATH``.
        memory: the directory that caches the tools' versions.
        host: the C++ compiler for host code, as a program; None lets nvcc choose.
    """
    found: list[Probe[CudaToolkit]] = []
    try:
        found.extend(_probes(cuda_home, path, memory, host))
    except TemporaryDirectoryError as error:
        found.append(Probe("nvcc", "temporary files", None, str(error), TEMPORARY_FIX))
    return found


def _probes(cuda_home: Path | None, path: str, memory: Path, host: str | None) -> Iterator[Probe[CudaToolkit]]:
    if cuda_home is not None:
        yield _probe(f"CUDA_HOME={cuda_home}", cuda_home, memory, host)
        return
    found = shutil.which("nvcc", path=path)
    yield _probe("nvcc in PATH", Path(found).resolve().parents[1] if found else None, memory, host)
    yield _probe("/usr/local/cuda", Path("/usr/local/cuda"), memory, host)
    yield _probe("nvidia-cuda-nvcc", pip_home(), memory, host)


def choose_nvcc(cuda_home: Path | None, path: str, memory: Path, host: str | None) -> CudaToolkit:
    """Return the first accepted toolkit; the arguments are those of :func:`probe_nvcc`.

    Raises:
        ToolchainError: when all are rejected, with the reasons and the first fix found.
        TemporaryDirectoryError: when no disk has room for a test compilation.
    """
    probes = []
    for probe in _probes(cuda_home, path, memory, host):
        if probe.tool is not None:
            return probe.tool
        probes.append(probe)
    rejections = "; ".join(f"{probe.name}: {probe.detail}" for probe in probes)
    fix = probes[-1].fix
    msg = f"choosing nvcc failed: none can compile: {rejections}. Fix: {fix}, or set CUDA_HOME."
    raise ToolchainError(msg)


def _probe(name: str, home: Path | None, memory: Path, host: str | None) -> Probe[CudaToolkit]:
    nvcc = None if home is None else home / "bin" / "nvcc"
    if home is None or nvcc is None or not os.path.isfile(nvcc):
        return Probe("nvcc", name, None, "not found" if nvcc is None else f"{nvcc} does not exist", _FIX)
    include_dirs = tuple(_directories(home, "include", "include/cccl"))
    headers = _headers_release(include_dirs)
    include_dirs = tuple(
        folder for folder in include_dirs if folder != Path("/usr/include")
    )  # -isystem would reorder it
    if headers is None:
        return Probe("nvcc", name, None, f"{home} has no cuda_runtime_api.h", "pip install nvidia-cuda-runtime")
    fix = f"pip install {' '.join(repr(f'{package}=={headers}.*') for package in _MATCHING)}"
    command = [str(nvcc), *(["--compiler-bindir", host] if host else [])]
    try:
        known = Memory(memory).recall(
            command, lambda: _try_out(command, include_dirs, memory), further=lambda: _parts(home)
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Probe("nvcc", name, None, f"{nvcc}: {error}", fix)
    said = known.said
    release = _RELEASE.search(said)
    if release is None:
        return Probe("nvcc", name, None, f"{nvcc} prints {said.splitlines()[-1]!r}, which names no release", _FIX)
    if headers != f"{release[1]}.{release[2]}":
        return Probe("nvcc", name, None, f"nvcc is {release[3]}, but the headers next to it are of CUDA {headers}", fix)
    toolkit = CudaToolkit(nvcc, release[3], include_dirs, tuple(_directories(home, "lib64", "lib")), known.identity)
    return Probe("nvcc", name, toolkit, f"{release[3]} at {home}")


def _headers_release(include_dirs: Sequence[Path]) -> str | None:
    for folder in include_dirs:
        header = folder / "cuda_runtime_api.h"
        found = (
            _CUDART_VERSION.search(header.read_text(errors="replace", encoding="utf-8")) if header.is_file() else None
        )
        if found is not None:
            return f"{int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}"
    return None


def _try_out(command: Sequence[str], include_dirs: Sequence[Path], memory: Path) -> str:
    """Return nvcc's version text after compiling a test kernel: pip may install parts in versions that do not match."""
    said = said_version(command[:1], memory)
    places = [word for folder in include_dirs for word in ("-isystem", str(folder))]

    def build(folder: Path) -> None:
        (folder / "trial.cu").write_text(_TRIAL, encoding="utf-8")
        run_quietly([*command, *places, "-c", "trial.cu", "-o", "trial.o"], memory, folder)

    in_scratch_folder(memory, f"trying out {command[0]}", build)
    return said


def _parts(home: Path) -> list[str]:
    """Return the programs and the device library that nvcc needs to compile; a full toolkit has many more."""
    found = [home / "bin" / name for name in _PROGRAMS]
    found += [*(home / "nvvm").glob("bin/*"), *(home / "nvvm").glob("libdevice/*"), *(home / "bin").glob("crt/*")]
    return [str(file) for file in found if file.is_file()]


def _directories(home: Path, *names: str) -> Iterator[Path]:
    """Return a toolkit's own directories, then those of pip's packages for CUDA 12, which are one folder each."""
    siblings = home.parent.glob("cuda_*") if home.parent.name == "nvidia" else ()
    for root in dict.fromkeys([home, *(home / "targets").glob("*-linux"), *siblings]):
        for name in names:
            if (root / name).is_dir():
                yield root / name


def pip_home() -> Path | None:
    """Return the location of pip's nvcc, or None."""
    package = importlib.util.find_spec("nvidia")
    for site in (package and package.submodule_search_locations) or ():
        for nvcc in sorted(Path(site).glob("*/bin/nvcc"), reverse=True):
            return nvcc.parents[1]
    return None
