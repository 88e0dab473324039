"""Compares two runs of deepspeed's own tests: with stock deepspeed, and with the integration.

    python tests/ecosystem/outcomes.py STOCK OURS

Each argument is a folder of reports, as pytest-reportlog's ``--report-log`` writes them. Prints a table by file, and the tests
that pass with stock deepspeed only; exits with 1 if there are any, if a file was not run to its end on both sides, or if no test
passed with stock deepspeed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

OUTCOMES = ("passed", "failed", "skipped")
WHOLE_FILE = "(the file)"
Run = dict[tuple[str, str], str]
"""The outcome of each test, by file and name."""


def entries(report: Path) -> list[dict[str, Any]]:
    """Return the entries of a report; the last line may be cut off, if its process was killed."""
    if not report.exists():
        return []
    lines = report.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def is_finished(report: Path) -> bool:
    """Return whether pytest has run all tests of a report's file: 0, all passed; 1, some failed; 5, none was selected.

    A file that cannot be imported (2) is finished as well: its failure is in the report.
    """
    return any(entry.get("exitstatus") in (0, 1, 2, 5) for entry in entries(report))


def outcomes(folder: Path) -> Run:
    """Return the outcomes in all reports of a folder; an error before or after a test counts as its failure."""
    found: Run = {}
    for report in sorted(folder.glob("*.jsonl")):
        for entry in entries(report):
            outcome = entry.get("outcome")
            if outcome is None or (entry["$report_type"] == "CollectReport" and outcome == "passed"):
                continue
            file, _, name = entry["nodeid"].partition("::")
            test = file, name or WHOLE_FILE
            is_first = test not in found
            if outcome == "failed" or (outcome == "skipped" and found.get(test) != "failed"):
                found[test] = outcome
            elif is_first and entry.get("when") == "call":
                found[test] = "passed"
    return found


def table(stock: Run, ours: Run) -> list[str]:
    """Return the lines of a table of both runs, with one row per file, and one per folder in which files are."""
    heads = [f"{side} {outcome}" for side in ("stock", "ours") for outcome in OUTCOMES]
    lines = ["| file | " + " | ".join(heads) + " |", "|---" * 7 + "|"]
    files = sorted({file for file, _ in (*stock, *ours)})
    folders = sorted({file.rpartition("/")[0] for file in files})
    for name in [*files, *folders]:
        runs = [
            [outcome for (file, _), outcome in run.items() if name in (file, file.rpartition("/")[0])]
            for run in (stock, ours)
        ]
        counts = [Counter(run) for run in runs]
        lines.append(f"| {name} | " + " | ".join(str(count[kind]) for count in counts for kind in OUTCOMES) + " |")
    return lines


def unfinished(stock: Path, ours: Path) -> list[str]:
    """Return the reports that one side lacks, or that do not have all of the file's tests."""
    names = sorted({report.name for folder in (stock, ours) for report in folder.glob("*.jsonl")})
    return [f"{folder.name}: {name}" for name in names for folder in (stock, ours) if not is_finished(folder / name)]


def main() -> int:
    folders = [Path(folder) for folder in sys.argv[1:]]
    stock, ours = (outcomes(folder) for folder in folders)
    passed, others = (
        [test for test in stock if stock[test] == "passed"],
        [test for test in ours if ours[test] == "passed"],
    )
    lost = sorted(set(passed) - set(others))
    not_run = unfinished(*folders)
    print("\n".join(table(stock, ours)))
    print(f"{len(passed)} pass with stock deepspeed; of them {len(lost)} do not with the integration;", end=" ")
    print(f"{len(set(others) - set(passed))} others do")
    print("\n".join(f"{file}::{name}: {ours.get((file, name), 'not run')}" for file, name in lost))
    print("\n".join(f"not run to its end: {name}" for name in not_run))
    return int(bool(lost or not_run) or not passed)


if __name__ == "__main__":
    sys.exit(main())
