"""SYCL's runtimes, built with the headers and libraries of pip's ``dpcpp-cpp-rt``: for CPU tensors, and for Intel's GPUs."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .. import loading
from ..engine import environment
from ..engine.cache import open_cache
from ..engine.errors import OpLoadError
from ..engine.fingerprint import host_isa
from ..engine.targets import NATIVE
from ..engine.toolchains.cxx import choose_cxx
from ..engine.toolchains.sycl import choose_dpcpp, probe_dpcpp
from ..host_library import HostLibrary
from ..op import CSRC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..engine.build import Recipe
    from ..engine.native import Compiler
    from ..engine.toolchains.cxx import CxxCompiler

__all__ = [
    "OPTIONS",
    "HostSyclRuntime",
    "SyclRuntimeBuilder",
    "XpuRuntime",
    "XpuRuntimeBuilder",
    "include_dirs",
]

OPTIONS = ("-std=c++20",)
"""The options of DPC++'s run-time compiler for every source."""
_OF_2025 = ("-fno-sycl-device-lib=all", "-w")
"""2025's wheel lacks the device libraries that its compiler would link, and it warns about this option; 2026 rejects it."""
_IN_MEMORY = re.compile(r"\brtc_\d+\.cpp(?::(\d+))?")
"""DPC++'s name for a source that it gets as text, and a line in it."""
_DRIVER = "install Intel's GPU driver, and an XPU build of torch"
_NAMED = re.compile(r'#line 1 "(.*)"\n')
"""The beginning of a source that comes from a file; DPC++ ignores it in its messages."""


class _SyclLibrary(HostLibrary):
    """Built with a C++ compiler that uses the system's C++ library, like DPC++'s libraries."""

    def cxx_args(self) -> list[str]:
        """Return flags for a fast compilation: the code only calls other libraries, so optimisation gains nothing."""
        return ["-O1", "-std=c++20", "-DNDEBUG"]  # with which the headers of DPC++ 2025 keep no path

    def cxx(self) -> CxxCompiler:
        memory = open_cache(environment.cache_dir()).root
        return choose_cxx(environment.cxx(), environment.search_path(), memory, for_torch_headers=True)

    def compilers(self, cxx: CxxCompiler) -> dict[str, Compiler]:
        dpcpp = choose_dpcpp()
        compiler = super().compilers(cxx)[".cpp"]
        version = f"{compiler.version}, DPC++ {dpcpp.version}"
        include_dirs = (dpcpp.include_dir, dpcpp.include_dir / "sycl")
        return {".cpp": compiler._replace(version=version, system_include_dirs=include_dirs)}

    def link_libraries(self) -> tuple[str, ...]:
        return (f"-l:{choose_dpcpp().libsycl.name}",)

    def link_paths(self) -> tuple[str, ...]:
        return (f"-L{choose_dpcpp().libsycl.parent}",)

    def recipes(self, target: str) -> list[Recipe]:
        """Return no builds for other machines: it depends on the libraries that it was built against."""
        return [self.recipe] if target == NATIVE and probe_dpcpp().tool is not None else []

    def prebuilt(self, trace: Any) -> None:
        return None

    def require_torch(self) -> None:
        choose_dpcpp()

    def _load_library(self, binary: Path) -> ctypes.CDLL:
        environment.announce_sycl(choose_dpcpp().libsycl.parent)
        library = loading.load_c_library(self.name, binary)
        kind = self.name.removesuffix("_runtime")
        for name in ("describe", "compile", "load", "kernel", "prepare", "launch_grid"):
            function = getattr(library, f"anyaccel_{kind}_{name}", None)
            if function is not None:
                function.restype = ctypes.c_char_p
        return library


class SyclRuntimeBuilder(_SyclLibrary):
    """Builds ``csrc/runtime/sycl.cpp``, which compiles SYCL and runs it on Intel's OpenCL CPU device."""

    NAME = "sycl_runtime"
    SOURCES = ("runtime/sycl.cpp",)

    def link_libraries(self) -> tuple[str, ...]:
        return (
            *super().link_libraries(),
            "-l:libOpenCL.so.1",
            f"-Wl,--disable-new-dtags,-rpath,{choose_dpcpp().libsycl.parent}",  # it also applies to libsycl's own dependencies
        )

    def _load_library(self, binary: Path) -> ctypes.CDLL:
        library = super()._load_library(binary)
        library.anyaccel_sycl_free.restype = None
        return library


class XpuRuntimeBuilder(_SyclLibrary):
    """Builds ``csrc/runtime/xpu.cpp``, which runs SPIR-V on torch's XPUs; it finds libsycl where torch has loaded it."""

    NAME = "xpu_runtime"
    SOURCES = ("runtime/xpu.cpp",)


@dataclass(frozen=True)
class _HostCompiler:
    """Compiles for the OpenCL CPU device, or to SPIR-V."""

    runtime: HostSyclRuntime
    version: str
    is_spirv: bool = False
    name = "DPC++"

    def compile(
        self, source: str, name: str, options: Sequence[str], kernels: Sequence[str]
    ) -> tuple[bytes, dict[str, str], str]:
        text, symbols = _with_kernels(source, kernels)
        image, size = ctypes.c_char_p(), ctypes.c_size_t()
        library = self.runtime.library
        is_older = int(self.version.split(".", maxsplit=1)[0]) < 2026
        arguments = _strings([*(_OF_2025 if is_older else ()), *options])
        error = library.anyaccel_sycl_compile(
            text.encode(), arguments, len(arguments), self.is_spirv, ctypes.byref(image), ctypes.byref(size)
        )
        if error is not None:
            return b"", {}, _with_places(error.decode(errors="replace"), source, name)
        try:
            return ctypes.string_at(image, size.value), symbols, ""
        finally:
            library.anyaccel_sycl_free(image)


class _Argument(ctypes.Structure):
    """``Argument`` in ``csrc/runtime/sycl.cpp``."""

    _fields_: ClassVar = [("value", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("is_pointer", ctypes.c_int32)]


def _arguments(values: Sequence[Any]) -> Any:
    described = [
        _Argument(ctypes.addressof(value), ctypes.sizeof(value), isinstance(value, ctypes.c_void_p)) for value in values
    ]
    return (_Argument * max(1, len(values)))(*described)


class HostSyclRuntime:
    """Runs kernels on Intel's OpenCL CPU device, in the memory of CPU tensors."""

    kind = "sycl"

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.launch = _address(library.anyaccel_sycl_launch)
        text = ctypes.create_string_buffer(512)
        error = library.anyaccel_sycl_describe(text, ctypes.c_size_t(512))
        if error is not None and choose_dpcpp().is_cut_off:
            _check("the CPU device", error, "create the virtual environment in a folder without a space in its path")
        self._check("the CPU device", error)
        self.device = text.value.decode(errors="replace")

    def compiler(self) -> _HostCompiler:
        """Return the compiler for this device; its version includes everything that a binary depends on."""
        facts = (choose_dpcpp().version, self.device, host_isa(), environment.opencl_variables())
        return _HostCompiler(self, ", ".join(filter(None, facts)))

    def spirv_compiler(self) -> _HostCompiler:
        """Return the compiler to SPIR-V, whose result depends on DPC++ and its options only."""
        return _HostCompiler(
            self, ", ".join(filter(None, (choose_dpcpp().version, environment.opencl_variables()))), is_spirv=True
        )

    def kernels(self, op: str, image: bytes, symbols: dict[str, str]) -> dict[str, int]:
        """Load a binary, and return its kernels' addresses.

        Raises:
            OpLoadError: when the device rejects it.
        """
        program = ctypes.c_void_p()
        self._check(op, self.library.anyaccel_sycl_load(image, ctypes.c_size_t(len(image)), ctypes.byref(program)))
        found = {}
        for name, symbol in symbols.items():
            kernel = ctypes.c_void_p()
            error = self.library.anyaccel_sycl_kernel(program, symbol.encode(), ctypes.byref(kernel))
            _check_kernel(op, error, name)
            found[name] = kernel.value or 0
        return found

    def launch_grid(
        self, what: str, kernel: int, device: int, groups: int, threads: int, values: Sequence[Any]
    ) -> None:
        """Start a kernel and wait for it; ``values`` are ctypes values, one per parameter.

        Raises:
            OpLoadError: when the device returns an error.
        """
        error = self.library.anyaccel_sycl_launch_grid(
            ctypes.c_void_p(kernel), ctypes.c_uint64(groups), ctypes.c_uint64(threads), _arguments(values), len(values)
        )
        _check(what, error, "correct its arguments, or the number of threads")

    def _check(self, what: str, error: bytes | None) -> None:
        _check(what, error, "pip install --force-reinstall 'anyaccel[sycl]'")


class XpuRuntime:
    """Runs SPIR-V on torch's XPUs, whose driver compiles it."""

    kind = "xpu"

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.launch = _address(library.anyaccel_xpu_launch)

    def kernels(self, op: str, image: bytes, symbols: dict[str, str]) -> dict[str, int]:
        """Take SPIR-V, for every device, and return its kernels' addresses by their names in ``symbols``."""
        code = ctypes.c_void_p()
        _check(op, self._library.anyaccel_xpu_load(image, ctypes.c_size_t(len(image)), ctypes.byref(code)), _DRIVER)
        found = {}
        for name, symbol in symbols.items():
            kernel = ctypes.c_void_p()
            _check(op, self._library.anyaccel_xpu_kernel(code, symbol.encode(), ctypes.byref(kernel)), _DRIVER)
            found[name] = kernel.value or 0
        return found

    def prepare(self, op: str, kernel: int, name: str, device: int) -> None:
        """Compile a kernel for a device.

        Raises:
            OpLoadError: when the driver rejects the code, or it has no kernel ``name``.
        """
        _check_kernel(op, self._library.anyaccel_xpu_prepare(ctypes.c_void_p(kernel), device), name)

    def launch_grid(
        self, what: str, kernel: int, device: int, groups: int, threads: int, values: Sequence[Any]
    ) -> None:
        """Start a kernel on torch's current queue for a device.

        Raises:
            OpLoadError: when the device returns an error.
        """
        error = self._library.anyaccel_xpu_launch_grid(
            ctypes.c_void_p(kernel), device, ctypes.c_uint64(groups), ctypes.c_uint64(threads), _arguments(values),
            len(values),
        )  # fmt: skip
        _check(what, error, "correct its arguments, or the number of threads")


def include_dirs() -> tuple[Path, ...]:
    """Return the directories where SYCL device code finds this project's headers."""
    return CSRC / "includes", CSRC / "runtime"


def _with_kernels(source: str, kernels: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return a source with a kernel for each instance, and the kernels' symbols."""
    symbols = {kernel: f"anyaccel_kernel_{number}" for number, kernel in enumerate(kernels)}
    wrappers = [f"ANYACCEL_SYCL_KERNEL({symbol}, {kernel})" for kernel, symbol in symbols.items()]
    return "\n".join([source, *wrappers, ""]), symbols


def _with_places(error: str, source: str, name: str) -> str:
    """Return DPC++'s messages with the source's file and lines."""
    named = _NAMED.match(source)
    place = name if named is None else named[1].replace('\\"', '"').replace("\\\\", "\\")
    added = 0 if named is None else 1
    return _IN_MEMORY.sub(lambda found: f"{place}:{int(found[1]) - added}" if found[1] else place, error)


def _strings(words: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(words))(*(word.encode() for word in words))


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _check_kernel(what: str, error: bytes | None, name: str) -> None:
    _check(what, error, f'name a kernel that the source declares extern "C", if {name} is none')


def _check(what: str, error: bytes | None, fix: str) -> None:
    if error is not None:
        said = error.decode(errors="replace").strip()
        msg = f"loading '{what}' with SYCL failed: {said}. Fix: {fix}."
        raise OpLoadError(msg)
