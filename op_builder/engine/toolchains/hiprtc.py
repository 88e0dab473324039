"""AMD's run-time compiler, where a ROCm build of torch, or ROCm, brings it; compiling needs no GPU."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ToolchainError
from ..inputs import digest_of
from .probe import Probe

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Hiprtc", "probe_hiprtc"]

_FIX = "pip install 'anyaccel[rocm]'"
_NAMES = ("libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6")
_COMGR = ("libamd_comgr.so", "libamd_comgr.so.3", "libamd_comgr.so.2")
_MISSING = "no library libhiprtc in torch's folder, and none that the system finds; a ROCm build of torch has it"


@dataclass(frozen=True)
class Hiprtc:
    """A loaded hipRTC.

    Attributes:
        version: the beginning of the library's digest; the version that it reports is the same for several releases.
        library: its path; empty if only the name of a result is needed.
    """

    version: str
    library: str = ""
    name = "hipRTC"

    def compile(
        self, source: str, name: str, options: Sequence[str], kernels: Sequence[str] = ()
    ) -> tuple[bytes, dict[str, str], str]:
        """Compile device code.

        Args:
            source: HIP C++ that defines ``ANYACCEL_HIP_KERNEL``.
            name: the source's name in messages.
            options: clang's options; ``--offload-arch=gfx942`` names the GPU.
            kernels: the template instances, each of which becomes a kernel.

        Returns:
            The code object, the symbol of each kernel, and the log with warnings; on failure, an empty code object and errors
            in the log.
        """
        _require_comgr(Path(self.library).parent)
        symbols = {kernel: f"anyaccel_kernel_{number}" for number, kernel in enumerate(kernels)}
        added = "".join(f"ANYACCEL_HIP_KERNEL({symbol}, {kernel})\n" for kernel, symbol in symbols.items())
        quoted = name.replace("\\", "\\\\").replace('"', '\\"')
        text = f'#line 1 "{quoted}"\n{source}\n{added}'
        program = _Program(_opened(self.library), text, Path(name).name)
        try:
            problem = program.compile(options)
            log = program.text("hiprtcGetProgramLog").rstrip(b"\0\n ").decode(errors="replace")
            if problem:
                return b"", {}, log or f"{problem} without a message"
            return program.text("hiprtcGetCode"), symbols, log
        finally:
            program.destroy()


class _Program:
    """A program of hipRTC's; every call is checked."""

    def __init__(self, library: ctypes.CDLL, source: str, name: str) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        self._call("hiprtcCreateProgram", ctypes.byref(self._handle), source.encode(), name.encode(), 0, None, None)

    def compile(self, options: Sequence[str]) -> str:
        """Compile, and return the name of the error, or nothing."""
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = self._library.hiprtcCompileProgram(self._handle, len(options), words)
        return self._name(status) if status else ""

    def text(self, get: str) -> bytes:
        """Return what a function of hipRTC's writes, whose size another one returns."""
        size = ctypes.c_size_t()
        self._call(f"{get}Size", self._handle, ctypes.byref(size))
        content = ctypes.create_string_buffer(max(1, size.value))
        if size.value:
            self._call(get, self._handle, content)
        return content.raw[: size.value]

    def destroy(self) -> None:
        self._call("hiprtcDestroyProgram", ctypes.byref(self._handle))

    def _call(self, function: str, *arguments: Any) -> None:
        status = self._library[function](*arguments)
        if status:
            msg = f"calling hipRTC failed: {function} returned {self._name(status)}. Fix: {_FIX}, or install ROCm's torch again."
            raise ToolchainError(msg)

    def _name(self, status: int) -> str:
        return str(self._library.hiprtcGetErrorString(status).decode(errors="replace"))


def probe_hiprtc() -> Probe[Hiprtc]:
    """Look for hipRTC in torch's folder and where the system has libraries; loads it, but touches no GPU."""
    try:
        library = _opened(_found())
        digest = digest_of(_path_of(library))
    except (OSError, AttributeError) as error:
        return Probe("amdgcn", "hipRTC", None, str(error), _FIX)
    return Probe("amdgcn", "hipRTC", Hiprtc(digest[:12], _path_of(library)), _path_of(library))


def _found() -> str:
    """Return the library to open: torch's own, or a name that the system finds.

    Raises:
        OSError: when there is none.
    """
    spec = importlib.util.find_spec("torch")
    folders = [Path(place, "lib") for place in (spec.submodule_search_locations if spec else None) or ()]
    names = [str(path) for folder in folders for path in sorted(folder.glob("libhiprtc.so*"))]
    for name in (*names, *_NAMES):
        try:
            ctypes.CDLL(name)
        except OSError as error:
            if names:
                msg = f"{name} cannot be loaded: {error}"
                raise OSError(msg) from error
        else:
            return name
    raise OSError(_MISSING)


@functools.cache
def _opened(name: str) -> ctypes.CDLL:
    library = ctypes.CDLL(name)
    library.hiprtcGetErrorString.restype = ctypes.c_char_p
    return library


def _require_comgr(folder: Path) -> None:
    """Check that hipRTC's own compiler can be loaded: without it, hipRTC ends the process."""
    beside = (str(path) for path in sorted(folder.glob("libamd_comgr.so*")))
    for name in (*beside, *_COMGR):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return
    msg = (
        f"calling hipRTC failed: its compiler, libamd_comgr, cannot be loaded from {folder}, nor by its name. "
        f"Fix: {_FIX}, or install ROCm's torch again."
    )
    raise ToolchainError(msg)


class _Found(ctypes.Structure):
    """``Dl_info`` of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)
    )  # fmt: skip


def _path_of(library: ctypes.CDLL) -> str:
    """Return the file of a library that the system found by name."""
    found = _Found()
    dladdr = ctypes.CDLL(None).dladdr
    if not dladdr(ctypes.cast(library.hiprtcCompileProgram, ctypes.c_void_p), ctypes.byref(found)):
        msg = f"the file of {library._name} cannot be determined"
        raise OSError(msg)
    return str(Path(found.file.decode()).resolve())
