"""Distributes the targets over child processes, and continues after one crashes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Result", "fuzz", "table"]

_ENOUGH_CALLS = 150
_MOST_CRASHES = 3
_TARGETS_A_CHILD = 40


@dataclass
class Result:
    """The result for one target."""

    target: str
    calls: int = 0
    accepted: int = 0
    messages: int = 0
    most: list[Any] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)

    def is_vacuous(self, least: float) -> bool:
        """Return whether too few calls were accepted: then the fuzzer tests only rejections.

        Args:
            least: the minimum share for a torch op. Schemas do not tell which objects and ids a public function accepts.
        """
        is_op = "::" in self.target
        return (
            is_op and not self.findings and self.calls >= _ENOUGH_CALLS and self.accepted < max(1, least * self.calls)
        )


def fuzz(
    folder: Path, *, calls: int, public_calls: int, seed: int, names: list[str], jobs: int, common: dict[str, Any]
) -> list[Result]:
    """Fuzz every target.

    Args:
        folder: for the files that parent and children share.
        calls: the number of calls per torch op.
        public_calls: the number of calls per public function.
        seed: the seed of the search.
        names: the names of the targets.
        jobs: the number of parallel processes.
        common: arguments for every child: ``libraries``, ``namespace`` and ``only``.
    """
    results = {name: Result(name) for name in names}
    tasks = deque({"target": name, "calls": calls if "::" in name else public_calls, "seed": seed} for name in names)
    lock = threading.Lock()

    def work(number: int) -> None:
        while True:
            with lock:
                mine = [tasks.popleft() for _ in range(min(_TARGETS_A_CHILD, -(-len(tasks) // jobs)))]
            if not mine:
                return
            for again in _run_child(folder / str(number), mine, common, results):
                with lock:
                    tasks.append(again)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(results.values())


def _run_child(
    folder: Path, tasks: list[dict[str, Any]], common: dict[str, Any], results: dict[str, Result]
) -> list[dict[str, Any]]:
    """Return the remaining work of a child that crashed."""
    folder.mkdir(exist_ok=True)
    case, written = folder / "case", folder / "results"
    for path in (case, written):
        path.unlink(missing_ok=True)
    work = json.dumps({"tasks": tasks, "case": str(case), "results": str(written), **common})
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--child", work], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=False, errors="replace", text=True,
    )  # fmt: skip
    done = set()
    for line in written.read_text(encoding="utf-8").splitlines() if written.exists() else []:
        part = json.loads(line)
        result = results[part["target"]]
        result.calls += part["calls"]
        result.accepted += part["accepted"]
        result.messages = max(result.messages, part["messages"])
        result.most = part["most"]
        result.findings += part["findings"]
        done.add(part["target"])
        report(result)
    left = [task for task in tasks if task["target"] not in done]
    if ended.returncode == 0 and not left:
        return []
    if not case.exists():
        raise RuntimeError(f"a child failed before its first call:\n{ended.stdout[-3000:]}")
    calls, accepted, crashed = json.loads(case.read_text(encoding="utf-8").splitlines()[0])
    result = results[crashed["target"]]
    result.calls += calls + 1
    result.accepted += accepted
    what = f"the process ended with {ended.returncode}: {_told(ended.stdout)}"
    result.findings.append({"what": what, "case": crashed})
    report(result)
    for task in left:
        if task["target"] == crashed["target"]:
            task["calls"] -= calls + 1
            task["seed"] += 1
    return [task for task in left if task["calls"] > 0 and len(results[task["target"]].findings) < _MOST_CRASHES]


def _told(output: str) -> str:
    """Return the sanitizer's report, or the last lines of output."""
    lines = output.splitlines()
    for number, line in enumerate(lines):
        if any(mark in line for mark in ("runtime error:", "ERROR: AddressSanitizer", "Fatal Python error")):
            return "\n".join(lines[number : number + 12])
    return "\n".join(lines[-12:])


def report(result: Result) -> None:
    """Print one target's line, and its findings with the commands that repeat them."""
    print(
        f"{result.target}: {result.calls} calls, {result.accepted} accepted, {len(result.findings)} findings",
        flush=True,
    )
    for finding in result.findings:
        case = shlex.quote(json.dumps(finding["case"]))
        print(f"  {finding['what']}\n  to repeat: python -m tests.fuzz --repeat {case}", flush=True)


def table(results: list[Result]) -> str:
    """Return the results as a table in Markdown."""
    rows = [
        f"| {result.target} | {result.calls} | {result.accepted} | {result.calls - result.accepted} "
        f"| {result.messages} | {len(result.findings)} |"
        for result in results
    ]
    head = ["| target | calls | accepted | refused | messages | findings |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *rows])
