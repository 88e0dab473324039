"""Whole programs: after ``anyaccel migrate --write`` alone, they train here, with the expected losses.

Beside each program is what makes it one for the CPU by hand, ``old -> new`` a line; for the one that asks whether CUDA is
there, that is nothing. On CUDA they must mean the same as before; there, devices are mocks (recorded_cuda.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anyaccel.cli import app
from anyaccel.migrate.site import SiteOutcome
from anyaccel.migrate.source import migrate_source

from ..programs import run_program
from .test_notebooks import sources

PROGRAMS = Path(__file__).parent / "programs"
RECORDER = Path(__file__).parent / "recorded_cuda.py"


RUNS = """
import os, runpy, sys
sys.stdout = open(os.environ["SAID"], "a")
os.environ["PYTHONPATH"] = os.environ.pop("PATH_OF_RANKS")
sys.argv = [sys.argv[1]]
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
"""


def losses_of(program: Path) -> list[str]:
    """Return what Python prints: gloo of torch 2.10 writes to the same stream, and two ranks mix their lines."""
    said = program.with_suffix(".said")
    start = program.parent / "start" / "sitecustomize.py"
    start.parent.mkdir(exist_ok=True)
    start.write_text("import os, sys\nsys.stdout = open(os.environ['SAID'], 'a')\n")
    path = os.pathsep.join([str(start.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PATH_OF_RANKS": path, "SAID": str(said)}
    done = run_program(RUNS, [str(program)], environment, program.parent)
    assert done.returncode == 0, done.stderr
    return said.read_text().splitlines()


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


@pytest.mark.parametrize("name", ["gpt", "imagenet", "typed_gan", "speech", "detection", "gan"])
def test_nothing_is_left_to_a_person(name: str) -> None:
    migration = migrate_source((PROGRAMS / f"{name}.txt").read_text())
    assert [site for site in migration.sites if site.outcome is SiteOutcome.REPORTED] == []


SHORT = ["--max_iters=1", "--eval_interval=1"]
ON_CUDA: dict[str, tuple[str, list[str], dict[str, str]]] = {
    "gpt": ("gpt", SHORT, {}),
    "gpt, in a group": ("gpt", SHORT, OF_ONE),
    "imagenet": ("imagenet", [], {}),
    "imagenet, on one device": ("imagenet", ["--gpu=1"], {}),
    "typed_gan": ("typed_gan", [], {}),
    "speech": ("speech", ["--n_gpus=1"], {}),
    "detection": ("detection", [], {}),
    "gan": ("gan", [], {}),
}
"""Programs with their arguments and environment."""


@pytest.fixture(scope="module")
def on_cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each program asks of two CUDA devices that only seem to be there, before and after its migration, and a wrong one."""
    folder = tmp_path_factory.mktemp("on_cuda")
    (folder / "configurator.py").write_text((PROGRAMS / "configurator.txt").read_text())
    runs: dict[str, tuple[str, list[str], dict[str, str]]] = {}
    for title, (name, arguments, environment) in ON_CUDA.items():
        old, new = folder / f"{name}_old.py", folder / f"{name}_new.py"
        old.write_text((PROGRAMS / f"{name}.txt").read_text())
        new.write_text(migrate_source(old.read_text()).new)
        runs[f"{title}: before"] = str(old), arguments, environment
        runs[f"{title}: after"] = str(new), arguments, environment
    wrong = folder / "wrong.py"
    wrong.write_text((folder / "gpt_new.py").read_text().replace("device_name(ddp_local_rank)", "device_name(1)"))
    runs["wrong"] = str(wrong), SHORT, OF_ONE
    (folder / "runs.json").write_text(json.dumps(list(runs.values())))
    command = [sys.executable, "-W", "ignore", RECORDER, folder / "records.json", folder / "runs.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return dict(zip(runs, json.loads((folder / "records.json").read_text()), strict=True))


@pytest.mark.parametrize("title", ON_CUDA)
def test_on_cuda_it_means_the_same(title: str, on_cuda: dict[str, dict[str, Any]]) -> None:
    """The same commands for the same devices, in the same order, and the same output."""
    before, after = on_cuda[f"{title}: before"], on_cuda[f"{title}: after"]
    assert after == before
    assert ["move", "cuda:1" if "--gpu=1" in ON_CUDA[title][1] else "cuda:0", "False"] in before["events"]
    assert len(before["said"].splitlines()) >= 3


def test_another_device_is_noticed(on_cuda: dict[str, dict[str, Any]]) -> None:
    right, wrong = on_cuda["gpt, in a group: after"], on_cuda["wrong"]
    assert ["set_device", "1"] in wrong["events"]
    assert wrong["events"] != right["events"]


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
