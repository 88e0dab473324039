"""The environment variables that this package reads, each named here and nowhere else.

===============================  ====================================================================
ANYACCEL_CPU_BACKEND             the CPU's communication backend, such as ``shm``; else ``gloo``, or ``ccl`` with Intel's bindings
DS_ACCELERATOR                   the accelerator to use, by name; overrides detection
DS_ALLOW_DEPRECATED_FP16         ``1``: fp16 counts as supported on compute capability 6.x
LOCAL_RANK                       set by torchrun and deepspeed: this process's index on the host
LOCAL_SIZE, LOCAL_WORLD_SIZE     set by deepspeed and torchrun: how many processes the host runs
===============================  ====================================================================
"""

from __future__ import annotations

import os

from .errors import EnvironmentVariableError

__all__ = ["allows_deprecated_fp16", "cpu_backend", "local_rank", "local_world_size", "requested_accelerator"]


_DIGITS = 9


def requested_accelerator() -> str | None:
    """Return the value of ``DS_ACCELERATOR``, or None when it is unset or empty."""
    return os.environ.get("DS_ACCELERATOR") or None


def cpu_backend() -> str | None:
    """Return the value of ``ANYACCEL_CPU_BACKEND``, or None when it is unset or empty."""
    return os.environ.get("ANYACCEL_CPU_BACKEND") or None


def allows_deprecated_fp16() -> bool:
    """Return whether to use fp16 on GPUs for which NVIDIA deprecated it (compute capability 6.x)."""
    return os.environ.get("DS_ALLOW_DEPRECATED_FP16", "0") == "1"


def local_rank() -> int:
    """Return this process's index among the host's ranks; 0 without a launcher."""
    return _natural_number("LOCAL_RANK") or 0


def local_world_size() -> int | None:
    """Return how many ranks the launcher runs on this host; None without a launcher."""
    return _natural_number("LOCAL_SIZE") or _natural_number("LOCAL_WORLD_SIZE") or None


def _natural_number(name: str) -> int | None:
    text = os.environ.get(name)
    if not text:
        return None
    if not text.isdecimal() or len(text.lstrip("0")) > _DIGITS:
        msg = (
            f"reading the environment failed: got {name}={text[:80]!r}; expected a whole number of 0 or more. "
            f"Fix: unset {name}, or start the processes with torchrun, which sets it."
        )
        raise EnvironmentVariableError(msg)
    return int(text.lstrip("0") or "0")
