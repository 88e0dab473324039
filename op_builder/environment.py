"""The environment variables that this package reads, each named here and nowhere else.

==========================  ============================================================================
ANYACCEL_CACHE_DIR          where built ops are kept; the user's cache directory otherwise
ANYACCEL_BUILD_JOBS         how many compiler processes run at once; from cores and memory otherwise
CXX                         the C++ compiler to use, with leading arguments (``ccache g++``) if any
PATH                        where compilers are looked for
ZIG_GLOBAL_CACHE_DIR        where ziglang keeps what it builds for itself; inside the cache otherwise
==========================  ============================================================================
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["build_jobs", "cache_dir", "compiler_environment", "cxx", "search_path"]


def cache_dir() -> Path | None:
    """Return the directory that ``ANYACCEL_CACHE_DIR`` names, or None."""
    value = os.environ.get("ANYACCEL_CACHE_DIR")
    return Path(value).expanduser().absolute() if value else None


def build_jobs() -> int | None:
    """Return the number of compiler processes that ``ANYACCEL_BUILD_JOBS`` asks for, or None."""
    value = os.environ.get("ANYACCEL_BUILD_JOBS")
    if not value:
        return None
    if not value.isdecimal() or int(value) == 0:
        msg = f"reading ANYACCEL_BUILD_JOBS failed: got {value!r}; expected a number of 1 or more. Fix: unset or correct it."
        raise ValueError(msg)
    return int(value)


def cxx() -> str | None:
    """Return the compiler command in ``CXX``, or None."""
    return os.environ.get("CXX") or None


def search_path() -> str:
    """Return ``PATH``."""
    return os.environ.get("PATH", os.defpath)


def compiler_environment(cache: Path) -> dict[str, str]:
    """Return the environment to run compilers in: this process's, with ziglang's own files in a cache that can be written."""
    return {"ZIG_GLOBAL_CACHE_DIR": str(cache / "zig"), **os.environ}
