"""Compares two runs of deepspeed's own tests: with stock deepspeed, and with the integration.

    python tests/ecosystem/outcomes.py STOCK OURS

Each argument is a folder of JUnit reports, as pytest's ``--junitxml`` writes them. Prints a table by file, and the tests that
pass with stock deepspeed only; exits with 1 if there are any, or if no test passed with stock deepspeed.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

OUTCOMES = ("passed", "failed", "skipped")
Run = dict[tuple[str, str], str]
"""The outcome of each test, by file and name."""


def outcomes(folder: Path) -> Run:
    """Return the outcomes in all reports of a folder; errors count as failures."""
    found = {}
    for report in sorted(folder.glob("*.xml")):
        for case in ET.parse(report).iter("testcase"):  # noqa: S314  # pytest wrote it
            path = (case.get("classname") or case.get("name", "")).split(
                "."
            )  # a file that is skipped or fails has a name only
            module = [part for part in path if not part.startswith("Test")]
            name = ".".join([*path[len(module) :], case.get("name", "")])
            tags = {child.tag for child in case}
            outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
            found["/".join(module) + ".py", name] = outcome
    return found


def table(stock: Run, ours: Run) -> list[str]:
    """Return the lines of a table of both runs, with one row per file."""
    heads = [f"{side} {outcome}" for side in ("stock", "ours") for outcome in OUTCOMES]
    lines = ["| file | " + " | ".join(heads) + " |", "|---" * 7 + "|"]
    for file in sorted({file for file, _ in (*stock, *ours)}):
        counts = [Counter(outcome for (one, _), outcome in run.items() if one == file) for run in (stock, ours)]
        lines.append(f"| {file} | " + " | ".join(str(count[kind]) for count in counts for kind in OUTCOMES) + " |")
    return lines


def main() -> int:
    stock, ours = (outcomes(Path(folder)) for folder in sys.argv[1:])
    passed, others = (
        [test for test in stock if stock[test] == "passed"],
        [test for test in ours if ours[test] == "passed"],
    )
    lost = sorted(set(passed) - set(others))
    print("\n".join(table(stock, ours)))
    print(f"{len(passed)} pass with stock deepspeed; of them {len(lost)} do not with the integration;", end=" ")
    print(f"{len(set(others) - set(passed))} others do")
    print("\n".join(f"{file}::{name}: {ours.get((file, name), 'not run')}" for file, name in lost))
    return int(bool(lost) or not passed)


if __name__ == "__main__":
    sys.exit(main())
