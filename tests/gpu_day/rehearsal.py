"""Runs the day with a CUDA build of torch and a pretended GPU: ``make gpu-day-rehearsal``.

The stand-in in ``stand_in/`` takes the place of CUDA's runtime, NVIDIA's driver, cuBLAS and compute-sanitizer. Its memory,
streams, events, graphs and matrix products work; kernels do nothing. So tests that compare values fail, and all times are
meaningless. What remains is what this shows: every line that leads to a launch and from it, and how the day ends.
"""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from .sanitizer import TOOLS
from .stand_in.build import PRODUCTS, RUNTIME, build
from .stand_in.sanitizer import install

ROOT = Path(__file__).parents[2]
EXPECTED = {
    "comparisons of values": r"\bAssertionError\b|^assert |Tensor-likes are not|"
    r"OpCheckError: .* failed with (Argument \w+ is not defined as mutable|Outputs of the operator are different)|"
    r"GradcheckError: (Backward is not reentrant|Jacobian mismatch)",
    "sizes that depend on values": r"numel: integer multiplication overflow|"
    r"CUDA out of memory\. Tried to allocate [\d.]+ GiB\. .* of which 6[34]\.\d+ GiB is free",  # a leak would fill it
}
"""Why tests fail on a device whose kernels do nothing, each with how the last line of such a failure looks."""
WITH_FINDING = "synccheck"
"""The tool whose stand-in reports an artificial error, which the day must report."""


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
    """Return the environment of a process that finds the stand-in instead of NVIDIA's libraries and programs.

    Args:
        folder: where ``build`` and ``install`` have put them.
    """
    # preloaded by name, as torch's libraries find NVIDIA's by a path of their own, which LD_LIBRARY_PATH does not precede
    preloaded = {"LD_PRELOAD": f"{RUNTIME}:{PRODUCTS}", "LD_LIBRARY_PATH": str(folder)}
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    return {**os.environ, **preloaded, "TRITON_LIBCUDA_PATH": str(folder), "PATH": path, "COLUMNS": "240"}


def unexplained(out: Path, outcomes: dict[str, str]) -> list[str]:
    """Print the expected failures of each stage of tests, and return what a device would have, too.

    Args:
        out: the day's folder, with the stages' logs.
        outcomes: what became of each stage, by name.
    """
    found = []
    for name, what in outcomes.items():
        is_of_tests = name == "tests" or name in TOOLS
        wanted = {"failed: it found errors"} if name == WITH_FINDING else {"passed"}
        wanted |= {"failed with exit code 1"} if is_of_tests and name != WITH_FINDING else set()
        if what not in wanted:
            found.append(f"{name}: {what}")
        if not is_of_tests:
            continue
        text = (out / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        those = failures(text)
        if what == "failed with exit code 1" and not those.expected:
            found.append(f"{name}: its log lists no failures")
        for reason, count in those.expected.most_common():
            print(f"{name}: {count} failed that need a device: {reason}")
        found += [f"{name}: {count} failed for another reason: {line}" for line, count in those.others.most_common()]
    return found


def main(out: str, minutes: str) -> int:
    """Run the day, print what failed, and return 1 if a device would not explain all of it."""
    folder = Path(out).resolve()
    libraries = folder / "stand_in"
    build(libraries)
    install(libraries, WITH_FINDING)
    record = folder / "day.json"
    record.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.gpu_day", "--out", out, "--minutes", minutes]
    ran = subprocess.run(command, cwd=ROOT, env=environment(libraries), check=False)
    if not record.is_file():
        sys.exit("rehearsing the day failed: it wrote no day.json. Fix: read what it printed above.")
    outcomes = {row["name"]: row["what"] for row in json.loads(record.read_text(encoding="utf-8"))}
    found = unexplained(folder, outcomes)
    found += [f"{name}: it did not run" for name in ("tests", *TOOLS) if name not in outcomes]
    if ran.returncode != 1:
        found.append(f"the day's exit code is {ran.returncode}; it must be 1, as {WITH_FINDING} reports an error")
    print(
        "\n".join(found)
        or f"a device without arithmetic explains every failure, and {WITH_FINDING} reported the artificial error"
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
