"""Functions of deepspeed's op modules: ours do what stock deepspeed's do on a CPU, with unusual arguments too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = Path(__file__).with_name("op_modules.py")
ADAMS = ("adam_update", "adam_update, L2", "multi_tensor_adam", "multi_tensor_adam, L2, tuples")
MEANT: dict[str, Callable[[str], bool]] = {
    "a step is counted from 1": lambda call: call.endswith(": step 0") and call.startswith((*ADAMS, "adam_rollback")),
    "a negative decay is one": lambda call: call.endswith("a negative decay") and not call.startswith("adam_rollback"),
    "a rollback reverts a step without correction": lambda call: call == "adam_rollback: no correction",
    "Lion leaves what has no momentum": lambda call: call == "lion_update: nothing to follow",
    "a flag to skip is followed, as on GPUs": lambda call: "told to skip" in call,
}
"""Where ours differ: what they do instead, and of which calls that may be true. Ours may also take what stock's refuse."""


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what happened in each call, on stock's side and on ours."""
    found = []
    for side in ("stock", "ours"):
        file = tmp_path_factory.mktemp("outcomes") / f"{side}.pt"
        finished = subprocess.run([sys.executable, PROGRAM, side, file], capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        found.append(torch.load(file, weights_only=False))
    return found[0], found[1]


def _are_equal(call: str, stock: Any, ours: Any) -> bool:
    if stock is None or (isinstance(stock, tuple) and stock[0] == -1):
        return True
    if not isinstance(stock, tuple) or not isinstance(ours, tuple):
        return bool(stock == ours)
    if stock[0] != ours[0]:
        return False
    close = {"rtol": 2**-6, "atol": 2**-8} if "float16" in call else {"rtol": 1e-5, "atol": 1e-6}
    return all(
        torch.allclose(one, other, equal_nan=True, **close) for one, other in zip(stock[1], ours[1], strict=True)
    )


@pytest.mark.timeout(1800)  # stock deepspeed compiles five ops first
def test_calls_have_the_same_results_and_effects(sides: tuple[dict[str, Any], dict[str, Any]]) -> None:
    stock, ours = sides
    assert stock.keys() == ours.keys()
    differing = [call for call in stock if not _are_equal(call, stock[call], ours[call])]
    assert [call for call in differing if not any(is_meant(call) for is_meant in MEANT.values())] == []
    assert [reason for reason, is_meant in MEANT.items() if not any(map(is_meant, differing))] == []
