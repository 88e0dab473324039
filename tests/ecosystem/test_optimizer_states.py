"""Optimizers continue from the state that another side has saved, and back: stock deepspeed, deepspeed on our ops, and ours."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = Path(__file__).with_name("optimizer_states.py")
STEPS = 3
OF_STOCK = {"CPUAdam", "CPUAdam, bfloat16", "CPUAdagrad", "CPULion", "FusedAdam"}


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Return what each optimizer has after some steps on each of the given sides, one after another."""
    folder = tmp_path_factory.mktemp("states")

    @functools.cache
    def file_of(steps: int, *sides: str) -> Path:
        before = [file_of(steps, *sides[:-1])] if len(sides) > 1 else []
        file = folder / f"{'-'.join(sides)}-{steps}.pt"
        finished = subprocess.run(
            [sys.executable, PROGRAM, sides[-1], str(steps), *before, file], capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return file

    def load(steps: int, *sides: str) -> dict[str, Any]:
        found: dict[str, Any] = torch.load(file_of(steps, *sides))
        return found

    return load


@pytest.mark.timeout(1800)  # stock deepspeed compiles four ops first
@pytest.mark.parametrize(
    "sides",
    [
        ("stock", "deepspeed", "stock"),
        ("deepspeed", "stock", "deepspeed"),
        ("stock", "anyaccel", "stock"),
        ("anyaccel", "stock", "anyaccel"),
        ("deepspeed", "anyaccel", "deepspeed"),
        ("anyaccel", "deepspeed", "anyaccel"),
    ],
    ids="-".join,
)
def test_values_are_those_of_a_run_that_stays_on_one_side(
    after: Callable[..., dict[str, Any]], sides: tuple[str, ...]
) -> None:
    handed, stayed = after(STEPS, *sides), after(len(sides) * STEPS, sides[0])
    assert set(handed) == (OF_STOCK if "stock" in sides else {*OF_STOCK, "FusedLamb"})
    for name, ended in handed.items():
        assert ended["taken"] == stayed[name]["taken"] == 9
        # loading casts the moments of bfloat16 parameters on deepspeed's side, as torch does
        tolerance = {"rtol": 2**-6, "atol": 2**-8} if "bfloat16" in name else {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(ended["params"], stayed[name]["params"], **tolerance)
