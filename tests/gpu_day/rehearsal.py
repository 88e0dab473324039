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
NO_ARITHMETIC = re.compile(r"\bAssertionError\b|^E +assert |Tensor-likes are not|does no arithmetic")
"""Failures of a comparison, which a device without arithmetic cannot pass."""


class Failures(NamedTuple):
    """Failures of a log of pytest, by their last line.

    Attributes:
        comparisons: the number that compare values.
        others: the number of each other.
    """

    comparisons: int
    others: collections.Counter[str]


def failures(log: str) -> Failures:
    """Return what failed in a log of pytest; numbers in messages are left out, so that equal failures count together."""
    found = Failures(0, collections.Counter())
    for line in re.findall(r"^(?:FAILED|ERROR) \S.* - (.*)$", log, re.MULTILINE):
        if NO_ARITHMETIC.search(line) or line.startswith("assert "):
            found = found._replace(comparisons=found.comparisons + 1)
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
    """Run the day, print what failed, and return the number of kinds of failures that are not comparisons of values.

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
    print(f"{found.comparisons} comparisons of values failed, which need a device")
    for line, count in found.others.most_common():
        print(f"{count} x {line}")
    return len(found.others)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
