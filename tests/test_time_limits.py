"""No test fails only because the machine is busy: what it waits for has ten seconds or more, where a process may start late."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
LEAST = {  # what is limited, in seconds, and the least that a busy machine needs
    r"(?:begun|began|killed|sent|monotonic\(\)|perf_counter\(\)|time\(\)) < ([\d.]+)\b": 10,
    r"(?<!lambda: )\bstart\((?:seconds=)?([\d.]+)[,)]": 10,
    r"\b(?:timeout=|(?:join|wait|communicate)\()([1-9]\d*)\b": 10,  # less than a second is between two looks
    r"\bStage\(.*\), ([\d.]+)[,)].*cut after": 10,
}


def too_short(text: str) -> list[str]:
    """Return the lines with a limit that a busy machine may not keep."""
    return [
        line.strip()
        for line in text.splitlines()
        for limit, least in LEAST.items()
        if any(float(found[1]) < least for found in re.finditer(limit, line))
    ]


def test_no_limit_is_shorter_than_a_busy_machine_needs() -> None:
    found = {
        f"{file.relative_to(TESTS)}: {line}"
        for file in TESTS.rglob("*.py")
        if file != Path(__file__)
        for line in too_short(file.read_text(encoding="utf-8"))
    }
    assert not found, "\n".join(sorted(found))


def test_each_kind_of_limit_is_found() -> None:
    stage = 'assert next(run_stages([Stage("a", _python(code), 3)], x)).what == "cut after 3 s"'
    short = "assert time.monotonic() - begun < 5", "start(2)", "process.join(5)", "run(x, timeout=3)", stage
    assert [bool(too_short(line)) for line in short] == [True] * len(short)
    assert not too_short(
        "assert time.monotonic() - begun < 20\nstart(30)\nerror_of(lambda: start(1))\nrun(x, timeout=60)"
    )
