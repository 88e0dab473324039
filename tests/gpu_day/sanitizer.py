"""compute-sanitizer: where it is, and a stage that runs tests under it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .stages import SOME_PASSED, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CLEAN", "FINDING", "TOOLS", "find", "options", "packaged", "sanitized"]

TOOLS = ("memcheck", "racecheck", "synccheck")
CLEAN = r"========= (ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards displayed \(0 errors, 0 warnings\))"
FINDING = (
    r"========= (ERROR SUMMARY: (?!0 errors)|RACECHECK SUMMARY: (?!0 hazards)|"
    r"Invalid __\w+__|(Error|Warning): Race reported|Barrier error)"
)
"""The end of a report, or the first line of a finding, as a run that is cut has no end; it may follow unfinished output."""


def find() -> str | None:
    """Return compute-sanitizer of the PATH, of CUDA's usual folder, or of pip's package."""
    in_toolkit = shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    return shutil.which("compute-sanitizer") or in_toolkit or packaged()


def packaged() -> str | None:
    """Return compute-sanitizer of pip's nvidia-cuda-sanitizer-api, which is on no PATH."""
    folders = (str(Path(entry) / "nvidia" / "cu13" / "bin") for entry in sys.path)
    return next(filter(None, (shutil.which("compute-sanitizer", path=folder) for folder in folders)), None)


def options(tool: str) -> list[str]:
    """Return the options of a tool."""
    return [
        *("--tool", tool),
        *("--error-exitcode", "99"),  # where the tests pass; if they fail, it returns their exit code
        *("--check-exit-code", "no"),  # failed tests are no finding of its own
        # torch's own kernels, which are many, run unchecked and at their speed
        *("--kernel-name", "kernel_substring=anyaccel"),
        # after a finding, the other tests still say something
        *("--destroy-on-device-error", "kernel"),
        # torch and tests of refusals make calls that fail
        *("--report-api-errors", "no"),
        *("--launch-timeout", "60"),
    ]


def sanitized(tool: str, tests: Sequence[str], seconds: float, left_out: str = "") -> Stage:
    """Return the stage that runs a command of pytest under a tool."""
    program = find()
    if not left_out and program is None:
        left_out = "compute-sanitizer is not installed; make gpu-day-wheels collects it"
    # an allocation of its own for each tensor: memcheck does not see what lies within torch's large ones
    apart = ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"] if tool == "memcheck" else []
    return Stage(tool, [*apart, str(program), *options(tool), *tests], seconds, left_out, (CLEAN, SOME_PASSED), FINDING)
