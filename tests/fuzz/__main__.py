"""Fuzz every op: arguments generated from schemas, in memory between guard pages.

A call may raise a Python exception that leaves everything unchanged, or return the result for plain copies of its arguments,
which is compared with a float64 reference if there is one. Anything else is a finding.

Examples:
    python -m tests.fuzz --calls 2000                       every op and every public function
    python -m tests.fuzz --op anyaccel::swiglu --seed 7     one of them
    python -m tests.fuzz --repeat '{"target": ...}'         repeat the case of a finding
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .child import main as work
from .child import targets_of
from .oracle import Finding
from .parent import Result, fuzz, table
from .search import run_case


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1000, help="of each torch op")
    parser.add_argument("--public-calls", type=int, help="of each public function; a tenth of the others by default")
    parser.add_argument("--least-accepted", type=float, default=0.1, help="part of a torch op's calls")
    parser.add_argument("--only", action="append", default=[], help="an op to load, by its folder's name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--op", action="append", default=[], help="a target's name; may be given several times")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--library", action="append", default=[], help="ops to fuzz instead of the project's")
    parser.add_argument("--namespace", default="anyaccel", help="of the torch ops")
    parser.add_argument("--report", type=Path, help="a file for the results, as JSON")
    parser.add_argument("--repeat", help="a case, as JSON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        work(json.loads(given.child))
    common = {"libraries": given.library, "namespace": given.namespace, "only": given.only}
    if given.repeat:
        return _repeat(json.loads(given.repeat), common)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = fuzz(
            Path(folder), calls=given.calls, public_calls=given.public_calls or -(-given.calls // 10), seed=given.seed,
            names=[name for name in targets_of(**common) if not given.op or name in given.op], jobs=given.jobs,
            common=common,
        )  # fmt: skip
    print(table(results), f"\n{time.monotonic() - begin:.0f} s")
    if given.report:
        given.report.write_text(json.dumps([vars(result) for result in results], indent=1), encoding="utf-8")
    bad = [result for result in results if _is_bad(result, given.least_accepted)]
    return 1 if bad else 0


def _is_bad(result: Result, least: float) -> bool:
    if result.is_vacuous(least):
        print(f"{result.target}: only {result.accepted} of {result.calls} calls were accepted: {result.most}")
        return True
    return bool(result.findings)


def _repeat(case: dict[str, Any], common: dict[str, Any]) -> int:
    try:
        outcome, _ = run_case(targets_of(**common)[case["target"]], case["spec"], case["seed"], [])
    except Finding as finding:
        print(f"finding: {finding}")
        return 1
    print(outcome.message)
    return 0


sys.exit(main(sys.argv[1:]))
