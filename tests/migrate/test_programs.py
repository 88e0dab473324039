"""Whole programs: after ``anyaccel migrate --write`` alone, they train here, with the expected losses.

Beside each program is what makes it one for the CPU by hand, ``old -> new`` a line; for the one that asks whether CUDA is
there, that is nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anyaccel.cli import app

from .test_notebooks import sources

PROGRAMS = Path(__file__).parent / "programs"


def losses_of(program: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-W", "ignore", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def by_hand(name: str) -> str:
    text = (PROGRAMS / f"{name}.txt").read_text()
    for line in (PROGRAMS / f"{name}.reference.txt").read_text().splitlines():
        old, _, new = line.partition(" ->")
        assert old in text, old
        text = text.replace(old, new.strip())
    return text


def migrate(path: Path) -> None:
    app(["migrate", "--write", str(path)], standalone_mode=False)


OF_ONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""The variables that torchrun sets for a group of one process."""


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("ddp", {}),
        ("gan", {}),
        ("prefetcher", {}),
        ("amp", {}),
        ("gpt", {}),
        ("gpt", OF_ONE),
        ("imagenet", {}),
        ("typed_gan", {}),
        ("speech", {}),
        ("detection", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "group" * bool(value),
)
def test_a_program_trains_as_it_should(
    name: str, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    (tmp_path / "configurator.py").write_text((PROGRAMS / "configurator.txt").read_text())
    program, reference = tmp_path / "program.py", tmp_path / "reference.py"
    program.write_text((PROGRAMS / f"{name}.txt").read_text())
    reference.write_text(by_hand(name))
    migrate(program)
    expected = losses_of(reference)
    assert len(expected) >= 3
    assert losses_of(program) == expected


def test_a_notebook_trains_as_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells are run one after another, like in a kernel."""
    monkeypatch.chdir(tmp_path)
    lines = (PROGRAMS / "prefetcher.txt").read_text().split("\n\n\n")
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": text}
        for text in ["%%time\n" + lines[0], *lines[1:]]
    ]
    notebook, program = tmp_path / "train.ipynb", tmp_path / "program.py"
    notebook.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    migrate(notebook)
    program.write_text("\n".join(sources(notebook.read_text())).replace("%%time\n", ""))
    reference = tmp_path / "reference.py"
    reference.write_text(by_hand("prefetcher"))
    assert losses_of(program) == losses_of(reference)
