"""Runs the day with a CUDA build of torch and a pretended GPU: ``make gpu-day-rehearsal``.

The stand-in in ``stand_in/`` takes the place of CUDA's runtime and NVIDIA's driver. Its memory, streams, events and graphs work;
kernels do nothing. So tests that compare values fail, and all times are meaningless. What remains is what this shows: every line
that leads to a launch and from it, and how the day ends.
"""

from __future__ import annotations

import collections
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from .stand_in.build import DRIVER, RUNTIME, build

ROOT = Path(__file__).parents[2]
EXPECTED = {
    "comparisons of values": r"\bAssertionError\b|^assert |Tensor-likes are not|"
    r"OpCheckError: .* failed with (Argument \w+ is not defined as mutable|Outputs of the operator are different)",
    "sizes that depend on values": r"numel: integer multiplication overflow|OutOfMemoryError: CUDA out of memory",
    "matrix products, as cuBLAS rejects the stand-in": r'call_dispatcher\("aten::linear"|CUBLAS_STATUS_NOT_INITIALIZED',
}
"""Why tests fail on a device whose kernels do nothing, each with how the last line of such a failure looks."""


class Failures(NamedTuple):
    """Failures of a log of pytest, by their last line.

    Attributes:
        expected: the number for each reason that a device without arithmetic gives.
        others: the number of each other line.
    """

    expected: collections.Counter[str]
    others: collections.Counter[str]


def failures(log: str) -> Failures:
    """Return what failed in a log of pytest; numbers in messages are left out, so that equal failures count together."""
    found = Failures(collections.Counter(), collections.Counter())
    for line in re.findall(r"^(?:FAILED|ERROR) \S.* - (.*)$", log, re.MULTILINE):
        reason = next((reason for reason, pattern in EXPECTED.items() if re.search(pattern, line)), "")
        if reason:
            found.expected[reason] += 1
        else:
            found.others[re.sub(r"\d+", "#", line)] += 1
    return found


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process that finds the stand-in instead of CUDA's runtime and driver.

    Args:
        folder: where ``build`` has put them.
    """
    # preloaded, as torch's libraries find the runtime by a path of their own, which LD_LIBRARY_PATH does not precede
    preloaded = {"LD_PRELOAD": str(folder / RUNTIME), "LD_LIBRARY_PATH": str(folder)}
    return {**os.environ, **preloaded, "TRITON_LIBCUDA_PATH": str(folder), "COLUMNS": "240"}


def main(out: str, minutes: str) -> int:
    """Run the day, print what failed, and return the number of kinds of failures that a device would have, too.

    It also returns 1 when the tests were cut.
    """
    libraries = Path(out).resolve() / "stand_in"
    build(libraries)
    command = [sys.executable, "-m", "tests.gpu_day", "--out", out, "--minutes", minutes]
    subprocess.run(command, cwd=ROOT, env=environment(libraries), check=False)
    log = Path(out) / "tests.log"
    if not log.is_file():
        sys.exit(f"rehearsing the day failed: {log} was not written. Fix: read what {DRIVER} printed above.")
    text = log.read_text(encoding="utf-8", errors="replace")
    if not re.search(r"^\d+ .* in [\d.]+s", text, re.MULTILINE):  # pytest lists failures at its end
        print("the stage 'tests' was cut before its end, so its failures are unknown. Fix: a larger MINUTES")
        return 1
    found = failures(text)
    for reason, count in found.expected.most_common():
        print(f"{count} failed that need a device: {reason}")
    for line, count in found.others.most_common():
        print(f"{count} failed for another reason: {line}")
    return len(found.others)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
