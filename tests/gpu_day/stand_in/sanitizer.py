"""compute-sanitizer for the rehearsal: it runs the command, and reports in NVIDIA's form. It checks nothing, as no kernel runs.

NVIDIA's own program, of pip's package, first reads the same options: what it rejects is rejected here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from ..sanitizer import packaged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["install", "rejection"]

READ = "Target application terminated before first instrumented API call"
"""What NVIDIA's program says of one that does not use CUDA, after it has read its options."""


def install(folder: Path, finding: str) -> None:
    """Write the program ``compute-sanitizer`` into a folder, for processes that run in the checkout.

    Args:
        folder: to be put into the PATH.
        finding: the tool that reports an artificial error; empty for none.
    """
    program = folder / "compute-sanitizer"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {__name__} "{finding}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)


def rejection(options: Sequence[str]) -> str:
    """Return what NVIDIA's own program says of options that it rejects; empty if it takes them.

    Raises:
        FileNotFoundError: when pip's package is not installed.
    """
    program = packaged()
    if program is None:
        msg = "finding compute-sanitizer failed: pip's package is not installed. Fix: pip install nvidia-cuda-sanitizer-api"
        raise FileNotFoundError(msg)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    command = [program, *options, "true"]
    ran = subprocess.run(command, env=plain, capture_output=True, text=True, encoding="utf-8", check=False)
    said = ran.stdout + ran.stderr
    return "" if READ in said else said


def main(finding: str, *arguments: str) -> int:
    """Run a command as compute-sanitizer would, and return the exit code that it would return."""
    parser = argparse.ArgumentParser(prog="compute-sanitizer", allow_abbrev=False)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--error-exitcode", type=int, default=0)
    for name in ("check-exit-code", "kernel-name", "destroy-on-device-error", "report-api-errors", "launch-timeout"):
        parser.add_argument(f"--{name}")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    said = rejection(arguments[: len(arguments) - len(options.command)])
    if said:
        sys.stderr.write(said)
        return 255
    write = sys.stdout.write
    write("========= COMPUTE-SANITIZER\n")
    sys.stdout.flush()
    code = subprocess.run(options.command, check=False).returncode
    count = int(options.tool == finding)
    if count:
        write("========= Barrier error detected. Divergent thread(s) in warp.\n")
        write("=========     An artificial error of the stand-in: no kernel ran.\n=========\n")
    if options.tool == "racecheck":
        write(f"========= RACECHECK SUMMARY: {count} hazards displayed ({count} errors, 0 warnings)\n")
    else:
        write(f"========= ERROR SUMMARY: {count} error{'' if count == 1 else 's'}\n")
    return code or (options.error_exitcode if count else 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
