"""NVIDIA's run-time compiler: CUDA device code to machine code, for any architecture, without a GPU or a toolkit."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from ..errors import ToolchainError
from .probe import Probe

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Nvrtc", "choose_nvrtc", "probe_nvrtc"]

_FIX = "pip install 'anyaccel[cuda]'"


@dataclass(frozen=True)
class Nvrtc:
    """A loaded NVRTC.

    Attributes:
        version: such as ``13.0``.
    """

    version: str
    name = "NVRTC"

    def architectures(self) -> list[int]:
        """Return the SM numbers that it can compile for, such as 80 and 90, ascending."""
        return [int(sm) for sm in _checked(_bindings().nvrtcGetSupportedArchs())]

    def compile(
        self, source: str, name: str, options: Sequence[str], kernels: Sequence[str] = ()
    ) -> tuple[bytes, dict[str, str], str]:
        """Compile device code.

        Args:
            source: CUDA C++.
            name: the source's name in messages.
            options: NVRTC's options; ``-arch=sm_90`` gives machine code, ``-arch=compute_90`` PTX.
            kernels: name expressions, such as ``scale<float>``; each instantiates a template.

        Returns:
            The binary, the symbol of each name expression, and the log with warnings; on failure, an empty binary and errors
            in the log.
        """
        nvrtc = _bindings()
        program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
        try:
            for kernel in kernels:
                _checked(nvrtc.nvrtcAddNameExpression(program, kernel.encode()))
            (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
            log = (
                _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
                .rstrip(b"\0 ")
                .decode(errors="replace")
            )
            if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
                return b"", {}, log or f"{status.name} without a message"
            symbols = {
                kernel: _checked(nvrtc.nvrtcGetLoweredName(program, kernel.encode())).decode() for kernel in kernels
            }
            if any(option.startswith("-arch=sm_") for option in options):
                return _text(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN), symbols, log
            return _text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).rstrip(b"\0"), symbols, log
        finally:
            nvrtc.nvrtcDestroyProgram(program)


def probe_nvrtc() -> Probe[Nvrtc]:
    """Look for NVRTC and its Python bindings; loads the library, but creates no context."""
    name = "cuda-bindings"
    if (
        importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None
    ):  # anyaccel: ignore[device-name]
        return Probe("NVRTC", name, None, "cuda-bindings is not installed", _FIX)
    try:
        major, minor = _checked(_bindings().nvrtcVersion())
    except Exception as error:  # noqa: BLE001  # its loader raises its own types, and a probe must not raise
        return Probe("NVRTC", name, None, f"libnvrtc cannot be loaded: {str(error).strip().splitlines()[0]}", _FIX)
    version = _installed_version(f"{major}.{minor}")
    return Probe("NVRTC", name, Nvrtc(version), version)


def _installed_version(release: str) -> str:
    """Return the version with its patch number if pip installed it: NVRTC itself reports only major and minor."""
    for package in ("nvidia-cuda-nvrtc", f"nvidia-cuda-nvrtc-cu{release.partition('.')[0]}"):
        try:
            installed = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        if installed.startswith(f"{release}."):
            return installed
    return release


def choose_nvrtc() -> Nvrtc:
    """Return NVRTC.

    Raises:
        ToolchainError: when NVRTC cannot be used, with the reason.
    """
    probe = probe_nvrtc()
    if probe.tool is None:
        msg = f"choosing NVRTC failed: {probe.detail}. Fix: {_FIX}."
        raise ToolchainError(msg)
    return probe.tool


def _bindings() -> Any:
    return importlib.import_module("cuda.bindings.nvrtc")


def _checked(result: tuple[Any, ...]) -> Any:
    """Return the results of an NVRTC call.

    Raises:
        ToolchainError: when the call failed.
    """
    status, *values = result
    if status.value != 0:
        msg = f"calling NVRTC failed: it returned {status.name}. Fix: {_FIX} --upgrade."
        raise ToolchainError(msg)
    return values[0] if len(values) == 1 else values


def _text(program: Any, size_of: Any, get: Any) -> bytes:
    content = bytearray(_checked(size_of(program)))  # C writes into it, which a bytes object must not allow
    _checked(get(program, content))
    return bytes(content)
