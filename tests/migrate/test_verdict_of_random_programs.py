"""Random programs and their verdicts: what is said to start does, and what is said not to start does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anyaccel.migrate.files import migrate_files, write
from anyaccel.migrate.verdict import verdicts

from .random_programs import FILES, random_program

_ROOT = Path(__file__).parents[2]
_AT_ONCE = 40


def _differences(first: int, folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_open: bool) -> list[str]:
    """Return the programs whose verdict is not what they do."""
    seeds = range(first, first + _AT_ONCE)
    answers = []
    for seed in seeds:
        place = folder / str(seed)
        for name, text in random_program(seed, is_open=is_open).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        monkeypatch.chdir(place)
        results = migrate_files([Path(name) for name in FILES], "anyaccel")
        (verdict,) = verdicts(results)
        answers.append(verdict)
        for each in results:
            if each.new != each.old:
                write(each)
    command = [sys.executable, "-m", "tests.migrate.random_programs", *(str(folder / str(seed)) for seed in seeds)]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True)
    ends = ran.stdout.splitlines()
    assert len(ends) == len(answers), ran.stderr
    return [
        f"{seed}: {answer} but {end}"
        for seed, answer, end in zip(seeds, answers, ends, strict=True)
        if (answer.answer == "yes" and end != "ok") or (answer.answer == "no" and end == "ok" and not is_open)
    ]


@pytest.mark.parametrize("first", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40, 1200, 40))])
def test_a_program_does_what_its_verdict_says(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _differences(first, tmp_path, monkeypatch, is_open=False) == []


@pytest.mark.parametrize(
    "first", [5000, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5040, 5800, 40))]
)
def test_a_program_that_is_said_to_start_does(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _differences(first, tmp_path, monkeypatch, is_open=True) == []
