"""Builds the emulator and an op's CUDA kernels for it, and registers them with the op's host library as a device's."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from anyaccel.op_builder.device_kernels import register_kernels
from anyaccel.op_builder.op import CSRC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyaccel.op_builder.op import Op

HERE = Path(__file__).parent
EMULATOR = CSRC / "emulator"
SANITIZED = "ANYACCEL_EMULATOR_TSAN"
"""Set in a process that ThreadSanitizer's library checks, instead of the emulator's own access checks."""
GROUP = "ANYACCEL_TEST_GROUP"
"""In a process that runs kernels in the emulator, the group that they get, one of ``LANES``; ``cuda`` is the default."""
LANES = {"cuda": 32, "hip32": 32, "hip64": 64, "sycl": 32}
"""The lanes of a warp, by group."""
ENTRY = """extern "C" void emulator_run_{number}(const void* argument) {{
  using Kernel = {instance};
  {call};
}}
"""
_CALLS = {
    "cuda": "run<Kernel>(*static_cast<const Kernel*>(argument))",
    "hip": "anyaccel_kernel_{number}(*static_cast<const Kernel*>(argument))",
    "sycl": "Kernel(*static_cast<const Kernel*>(argument))(SyclGroup{})",
}
_NO_FLOAT16 = "-U__FLT16_MANT_DIG__"  # NVRTC has no _Float16
_LANGUAGES = {
    "cuda": ["-include", str(EMULATOR / "language" / "cuda_on_host.h"), _NO_FLOAT16],
    "hip": ["-include", str(EMULATOR / "language" / "cuda_on_host.h")],
    "sycl": [f"-I{HERE / 'sycl_on_host'}", _NO_FLOAT16],
}
_SOURCES = {"cuda": "kernels.cu", "hip": "kernels.hip"}
_SYCL_KERNELS = '#include "sycl_group.h"\n#include ANYACCEL_OP_HEADER\nusing namespace anyaccel;\n'


def preloaded(group: str = "cuda") -> dict[str, str]:
    """Return the environment of a process that runs kernels in the emulator, with one of the groups of ``LANES``."""
    return {"LD_PRELOAD": str(built_engine(under_tsan=False, group=group)), GROUP: group}


def preloaded_with_tsan() -> dict[str, str]:
    """Return the environment of a process that runs kernels in the emulator under ThreadSanitizer."""
    library = subprocess.run(["g++", "-print-file-name=libtsan.so"], check=True, capture_output=True, text=True).stdout
    options = (
        "exitcode=66 report_signal_unsafe=0 ignore_interceptors_accesses=1"  # torch's threads are not compiled for it
    )
    return {"LD_PRELOAD": library.strip(), SANITIZED: "1", "TSAN_OPTIONS": options}


def built_engine(*, under_tsan: bool, group: str) -> Path:
    """Return the library that runs blocks and, unless ThreadSanitizer does, checks their accesses."""
    checks = [
        EMULATOR / name for name in ("accesses.cpp", "guards.cpp", "history.cpp", "instrumentation.cpp", "lines.cpp")
    ]
    own = [HERE / "no_checks.cpp"] if under_tsan else [*checks, HERE / "memory.cpp"]
    sources = [*(EMULATOR / f"{name}.cpp" for name in ("block", "fibers", "names")), HERE / "launch.cpp", *own]
    options = ["-std=c++20", "-O2", "-g", *_lanes(group), f"-I{EMULATOR}", *map(str, sources)]
    return _built("engine", options, [*EMULATOR.glob("*.h"), *sources])


def built_kernels(name: str, instances: Sequence[str], header: str, sources: Sequence[Path] = ()) -> Path:
    """Return a library of kernels.

    Args:
        name: the library's name.
        instances: the kernel template instances.
        header: the header that defines them.
        sources: folders searched for ``kernels.cu`` and headers, before the tree's own.
    """
    group = _kind()
    folders = [*sources, CSRC / "runtime", CSRC / "includes"]
    entries = "".join(
        ENTRY.format(number=number, instance=kernel, call=_CALLS[group].replace("{number}", str(number)))
        for number, kernel in enumerate(instances)
    )
    if group == "hip":
        defined = (
            f"ANYACCEL_HIP_KERNEL(anyaccel_kernel_{number}, {kernel})" for number, kernel in enumerate(instances)
        )
        entries = "\n".join([*defined, entries])
    included = _SYCL_KERNELS
    if group in _SOURCES:
        source = _SOURCES[group]
        kernels = next(folder / source for folder in folders if (folder / source).is_file())
        included = f'#include "{kernels}"\n'
    rows = "".join(
        f'{{"{kernel}", emulator_run_{number}, {_is_grid_meant(kernel, folders)}, &emulator::shared_memory}},'
        for number, kernel in enumerate(instances)
    )
    table = f'extern "C" EMULATOR_EXPORT emulator::Kernel emulator_kernels[] = {{{rows}}};\n'
    text = f'#include "{EMULATOR}/language/shared_memory.h"\n{included}{entries}{table}'
    read = [file for folder in folders for file in sorted(folder.iterdir()) if file.suffix in (".h", ".cu", ".hip")]
    options = [
        "-std=c++20", "-O1", "-g1", "-fsanitize=thread", "-w", "-fvisibility=hidden", "-fno-gnu-unique",
        *_lanes(_chosen()), f'-DANYACCEL_OP_HEADER="{header}"', *_LANGUAGES[group], "-iquote", str(EMULATOR),
        *(f"-I{folder}" for folder in folders), "-x", "c++",
    ]  # fmt: skip
    return _built(name, options, [*read, *EMULATOR.glob("**/*.h"), *HERE.glob("sycl_on_host/**/*.h*")], text)


def _chosen() -> str:
    return os.environ.get(GROUP, "cuda")


def _kind() -> str:
    """Return the language of the chosen group."""
    return _chosen().rstrip("0123456789")


def _lanes(group: str) -> list[str]:
    """Return the compiler's options for the lanes of a warp."""
    return [f"-DEMULATOR_LANES={LANES[group]}", f"-DANYACCEL_LANES={LANES[group]}"]


def _is_grid_meant(kernel: str, folders: Sequence[Path]) -> str:
    """Return whether a kernel uses its block's index and the number of blocks, like the C++ code."""
    start = re.compile(rf"^struct {kernel.partition('<')[0]}( : \w+)? {{.*?^}};", re.MULTILINE | re.DOTALL)
    for folder in folders:
        for header in folder.glob("*.h"):
            found = start.search(header.read_text())
            if found is not None:
                return "true" if re.search(r"group\.(index|count)", found[0]) else "false"
    msg = f"no struct {kernel} in {folders}"
    raise ValueError(msg)


def _built(name: str, options: Sequence[str], files: Sequence[Path], text: str = "") -> Path:
    """Compile a shared library, unless it exists; its name includes a hash of its inputs."""
    digest = hashlib.sha256(repr((options, text)).encode())
    for file in files:
        digest.update(file.read_bytes())
    folder = Path(os.environ.get("ANYACCEL_CACHE_DIR") or Path.home() / ".cache") / "emulator"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{name}-{digest.hexdigest()[:24]}.so"
    if library.is_file():
        return library
    source, unlinked = library.with_suffix(f".{os.getpid()}.cpp"), library.with_suffix(f".{os.getpid()}.o")
    if text:  # linked separately, without ThreadSanitizer's library: the preloaded library has its functions
        source.write_text(text)
        _compile("-c", *options, str(source), "-o", str(unlinked))
        options = [str(unlinked)]
    partial = library.with_suffix(f".{os.getpid()}.partial")
    _compile("-shared", *options, "-o", str(partial))
    partial.rename(library)
    source.unlink(missing_ok=True)
    unlinked.unlink(missing_ok=True)
    return library


def _compile(*arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(["g++", "-fPIC", *arguments], check=True, env=environment)


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("run", ctypes.c_void_p),
        ("is_grid_meant", ctypes.c_bool),
        ("shared_memory", ctypes.c_void_p),
    )


class Emulator:
    """Runs the kernels of ops instead of SYCL on the CPU: the host library uses it as that device."""

    kind = "sycl"

    def __init__(self) -> None:
        is_sanitized = SANITIZED in os.environ
        path = built_engine(under_tsan=is_sanitized, group=_chosen())
        assert is_sanitized or os.environ.get("LD_PRELOAD") == str(path), "the emulator must be preloaded"
        self._library = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        self._library.emulator_started.restype = ctypes.c_char_p
        self._library.emulator_launch.restype = ctypes.c_char_p
        self.launch = ctypes.cast(self._library.emulator_launch, ctypes.c_void_p).value or 0
        self._kept: list[ctypes.CDLL] = []

    def load(self, library: Path, instances: Sequence[str]) -> dict[str, int]:
        """Return the addresses of the kernels of a library."""
        kernels = ctypes.CDLL(str(library))
        self._kept.append(kernels)
        table = (_Kernel * len(instances)).in_dll(kernels, "emulator_kernels")
        return {name: ctypes.addressof(entry) for name, entry in zip(instances, table, strict=True)}

    def register(self, op: Op, library: Path, instances: Sequence[str]) -> None:
        """Register the kernels of a library with an op, whose host library is loaded."""
        register_kernels(op.name, self, 0, self.load(library, instances))

    def start(self, kernel: int, blocks: int, argument: ctypes.Structure) -> str:
        """Run a kernel; return the problem, or an empty text."""
        problem = self._library.emulator_launch(
            ctypes.c_void_p(kernel),
            0,
            ctypes.c_int64(blocks),
            0,
            1,
            ctypes.byref(argument),
            ctypes.c_size_t(ctypes.sizeof(argument)),
        )
        return problem.decode() if problem else ""

    def fix_size(self, threads: int) -> None:
        """Set the number of threads of every block, and launch as many blocks as the host requests; 0 varies both."""
        self._library.emulator_fix_size(threads)

    def started(self) -> dict[str, set[int]]:
        """Return the block sizes with which each kernel was started in this process."""
        lines = self._library.emulator_started().decode().splitlines()
        return {name: {int(size) for size in sizes.split()} for name, sizes in (line.split("\t") for line in lines)}


@cache
def emulator() -> Emulator:
    """Return the process's emulator."""
    return Emulator()


def register(op: Op) -> None:
    """Register all of an op's kernels with its host library, which is loaded."""
    kernels = op.kernels_for(_kind())
    emulator().register(op, built_kernels(op.name, kernels, f"{op.name}.h"), kernels)
