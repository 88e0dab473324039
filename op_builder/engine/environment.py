"""The environment variables of this package; only this file reads them.

==========================  ============================================================================
ANYACCEL_CACHE_DIR          where built ops are kept; the user's cache directory otherwise
ANYACCEL_BUILD_JOBS         how many compiler processes run at once; from cores and memory otherwise
ANYACCEL_BUILD_TIMEOUT      how many seconds one compiler may run before it is ended; no limit otherwise
ANYACCEL_WHEEL_TARGETS      GPUs that a wheel's ops serve as well, such as ``gfx942 gfx1100``
ANYACCEL_PLATFORM           the platform tag that ops are built ahead of time for, by ziglang (``manylinux_2_28_aarch64``)
CUDA_HOME, CUDA_PATH        the CUDA toolkit whose nvcc compiles third parties' ``.cu`` sources
CXX                         the C++ compiler to use, with leading arguments (``ccache g++``) if any
CPATH, CPLUS_INCLUDE_PATH   further header directories of compilers, by absolute paths; they affect a build
DS_BUILD_OPS, …             which ops ``anyaccel build --all`` builds: all, or one with ``DS_BUILD_<OP>``; 0 for none
DS_BUILD_AUTOGRAD           0: do not compile the op ``autograd`` beside an op that is compiled at its first load
COMPILER_PATH               where compilers look for their programs first; it affects a build
LIBRARY_PATH, …             what else compilers and linkers read; they affect a build
HOME, XDG_CACHE_HOME        where the user's cache directory is; if they are not absolute, a temporary directory is used
OCL_ICD_FILENAMES           the OpenCL drivers; if unset, set to pip's CPU driver before SYCL is loaded
PATH                        where compilers are looked for
SYCL_PROGRAM_…              options of DPC++'s runtime; they affect a build
CL_CONFIG_…                 options of Intel's OpenCL; they affect a build
SYCL_CACHE_PERSISTENT       whether DPC++ uses a cache of its own; what comes from it cannot be compiled to SPIR-V
TORCH_CUDA_ARCH_LIST        the GPU architectures for nvcc, as torch reads it (``8.0;9.0+PTX``)
ZIG_GLOBAL_CACHE_DIR        where ziglang keeps what it builds for itself; inside the cache otherwise
==========================  ============================================================================
"""

from __future__ import annotations

import functools
import logging
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "COMPILER_VARIABLES",
    "LIFELINE_FOR_COMMANDS",
    "PYTHON_FOR_COMMANDS",
    "announce_sycl",
    "build_jobs",
    "build_switches",
    "build_timeout",
    "cache_dir",
    "compiler_environment",
    "compiler_variables",
    "cuda_arch_list",
    "cuda_home",
    "cxx",
    "environment_of_tools",
    "header_folders",
    "home_problem",
    "inherited_environment",
    "opencl_variables",
    "program_search",
    "search_path",
    "wheel_platform",
    "wheel_targets",
    "zig_cache",
]

_logger = logging.getLogger(__name__)

COMPILER_VARIABLES = (
    "CCC_ADD_ARGS", "CCC_OVERRIDE_OPTIONS", "CCACHE_COMPILER", "CCACHE_PATH", "CCACHE_PREFIX", "COMPILER_PATH", "CPATH",
    "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "GCC_EXEC_PREFIX", "LDEMULATION", "LD_RUN_PATH", "LIBRARY_PATH",
    "NIX_CFLAGS_COMPILE", "NIX_LDFLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "SCCACHE_C_CUSTOM_CACHE_BUSTER",
    "SDKROOT", "SOURCE_DATE_EPOCH", "ZIG_LIBC", "ZIG_LIB_DIR",
)  # fmt: skip
"""What compilers and linkers read. They get these, and a binary is built again when one changes."""

_NEUTRAL = {
    "COLUMNS", "HOME", "LINES", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHLVL", "TERM", "TMPDIR", "USER", "ZIG_GLOBAL_CACHE_DIR"
}  # fmt: skip
"""Variables that scripts often read and that differ between shells; programs found through PATH are checked themselves."""

PYTHON_FOR_COMMANDS = "ANYACCEL_PYTHON"
"""Set for ninja only: the interpreter that starts its commands."""

LIFELINE_FOR_COMMANDS = "ANYACCEL_LIFELINE"
"""Set for ninja only: the descriptor that tells its commands when to stop."""


def cache_dir() -> Path | None:
    """Return the directory that ``ANYACCEL_CACHE_DIR`` names, or None."""
    value = os.environ.get("ANYACCEL_CACHE_DIR")
    return _directory("ANYACCEL_CACHE_DIR", value) if value else None


def home_problem() -> str:
    """Return why the user has no home directory for a cache; empty when there is one."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "").strip()
    if os.path.isabs(cache_home):
        return ""
    if cache_home:
        return f"XDG_CACHE_HOME is {cache_home!r}, which is not an absolute path"
    if "HOME" in os.environ:
        home = os.environ["HOME"]
        return "" if os.path.isabs(home) else f"HOME is {home!r}, which is not an absolute path"
    if os.path.isabs(os.path.expanduser("~")):
        return ""
    return "HOME is not set, and the system has no home directory for this user"


_DIGITS = 9


def build_jobs() -> int | None:
    """Return the number of compiler processes that ``ANYACCEL_BUILD_JOBS`` sets, or None."""
    value = os.environ.get("ANYACCEL_BUILD_JOBS")
    if not value:
        return None
    number = value.lstrip("0")
    if not (number.isascii() and number.isdecimal()) or len(number) > _DIGITS:
        msg = (
            f"reading ANYACCEL_BUILD_JOBS failed: got {value[:80]!r}; expected a number of 1 or more. "
            f"Fix: unset it for one job per core, or set it to a number such as 4."
        )
        raise SettingError(msg)
    return int(number)


def wheel_platform() -> str:
    """Return the platform tag in ``ANYACCEL_PLATFORM``; empty for this machine's platform."""
    return os.environ.get("ANYACCEL_PLATFORM", "")


def wheel_targets() -> list[str]:
    """Return the targets in ``ANYACCEL_WHEEL_TARGETS``, which a wheel serves besides those that every wheel does."""
    return os.environ.get("ANYACCEL_WHEEL_TARGETS", "").split()


def build_timeout() -> float | None:
    """Return the time limit for one compiler in seconds, from ``ANYACCEL_BUILD_TIMEOUT``, or None."""
    value = os.environ.get("ANYACCEL_BUILD_TIMEOUT")
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        msg = (
            f"reading ANYACCEL_BUILD_TIMEOUT failed: got {value!r}; expected a number of seconds above 0. "
            f"Fix: unset it for no limit, or set it to a number such as 600."
        )
        raise SettingError(msg)
    return seconds


def build_switches() -> dict[str, bool]:
    """Return deepspeed's ``DS_BUILD_…`` variables that are set to a number, by name, as booleans."""
    switches = {name: value for name, value in os.environ.items() if name.startswith("DS_BUILD_")}
    switches.pop("DS_BUILD_STRING", None)  # a version, such as a date
    for name, value in switches.items():
        if value and not value.isdecimal():
            _tell_ignored(name, value)
    return {name: any(map(int, value)) for name, value in switches.items() if value.isdecimal()}


@functools.cache  # each once
def _tell_ignored(name: str, value: str) -> None:
    _logger.warning("%s=%s is no number, and is ignored. Fix: %s=1, or 0", name, value, name)


def cxx() -> str | None:
    """Return the compiler command in ``CXX``, or None; relative paths are made absolute, as compilers run elsewhere."""
    value = os.environ.get("CXX")
    if not value:
        return None
    if os.path.isfile(value):  # a path, which may contain spaces
        return os.path.abspath(value) if os.sep in value else value
    try:
        words = shlex.split(value)
    except ValueError:  # an unclosed quotation mark, reported when the command is used
        return value
    if not any(map(_is_relative_file, words)):
        return value
    return shlex.join(os.path.abspath(word) if _is_relative_file(word) else word for word in words)


def _is_relative_file(word: str) -> bool:
    return os.sep in word and not os.path.isabs(word) and not word.startswith("-") and os.path.exists(word)


def cuda_home() -> Path | None:
    """Return the CUDA toolkit that ``CUDA_HOME`` or ``CUDA_PATH`` names, or None."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        value = os.environ.get(name)
        if value:
            return _directory(name, value)
    return None


@functools.cache  # a program that changes its working directory keeps its cache
def _directory(name: str, value: str) -> Path:
    if "\n" in value:  # compilers list the files that they read line by line
        msg = f"reading {name} failed: got {value!r}, with the end of a line; expected a directory. Fix: set it to another one."
        raise SettingError(msg)
    try:
        return Path(value).expanduser().absolute()
    except (OSError, RuntimeError) as error:  # OSError: the working directory is gone
        msg = f"reading {name} failed: got {value!r} ({error}); expected a directory. Fix: set it to an absolute path."
        raise SettingError(msg) from None


def cuda_arch_list() -> str | None:
    """Return the value of ``TORCH_CUDA_ARCH_LIST``, or None."""
    return os.environ.get("TORCH_CUDA_ARCH_LIST") or None


def search_path() -> str:
    """Return ``PATH`` with relative entries made absolute: compilers run in other directories."""
    value = os.environ.get("PATH", os.defpath)
    if not value:
        return value
    entries = value.split(os.pathsep)
    if all(map(os.path.isabs, entries)):
        return value
    try:
        return os.pathsep.join(entry if os.path.isabs(entry) else os.path.abspath(entry) for entry in entries)
    except FileNotFoundError:  # the working directory was removed, with its contents
        return os.pathsep.join(filter(os.path.isabs, entries))


def program_search() -> dict[str, str]:
    """Return the variables that tell compiler drivers where to look for programs."""
    return {"PATH": search_path(), "COMPILER_PATH": os.environ.get("COMPILER_PATH", "")}


def inherited_environment() -> dict[str, str]:
    """Return this process's environment, for a program that may run in another directory."""
    return {**os.environ, "PATH": search_path()}


def environment_of_tools() -> dict[str, str]:
    """Return this process's environment, for compilers and other tools that translate what they print: in English."""
    given = inherited_environment()
    given.pop("LANGUAGE", None)
    return {**given, "LC_ALL": "C.UTF-8"}


def compiler_environment(cache: Path, temporary: Path | None = None) -> dict[str, str]:
    """Return the environment for compilers: this process's, with their own files in writable directories.

    Args:
        cache: the directory that holds ziglang's own builds, unless the user sets another.
        temporary: the directory for temporary files, which a killed compiler leaves behind.
    """
    given = environment_of_tools()
    if temporary is not None:
        given["TMPDIR"] = str(temporary)
    return {"ZIG_GLOBAL_CACHE_DIR": str(cache / "zig"), **given}


def compiler_variables(further: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that give compilers flags and directories, and so affect a build.

    Args:
        further: further variables that a compiler reads, such as those of a wrapper script.
    """
    names = dict.fromkeys((*COMPILER_VARIABLES, *further))
    return {name: value for name in names if (value := os.environ.get(name)) is not None and name not in _NEUTRAL}


def opencl_variables() -> str:
    """Return the variables that change what DPC++'s runtime and Intel's OpenCL make of a source, as one text."""
    prefixes = ("SYCL_PROGRAM_", "CL_CONFIG_")
    return " ".join(f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(prefixes))


def header_folders() -> list[str]:
    """Return the directories in which run-time compilers look for headers by themselves."""
    listed = os.environ.get("CPATH", "").split(os.pathsep) + os.environ.get("CPLUS_INCLUDE_PATH", "").split(os.pathsep)
    return [*filter(None, listed), "/usr/local/include"]


def zig_cache(cache: Path) -> Path:
    """Return the directory for ziglang's own builds."""
    return Path(compiler_environment(cache)["ZIG_GLOBAL_CACHE_DIR"])


def announce_sycl(libraries: Path) -> None:
    """Set the variable that DPC++'s libraries read when they are loaded.

    Args:
        libraries: the folder of pip's ``dpcpp-cpp-rt``, which includes the OpenCL driver for the CPU.
    """
    driver = libraries / "libintelocl.so"
    if driver.is_file():
        os.environ.setdefault("OCL_ICD_FILENAMES", str(driver))
