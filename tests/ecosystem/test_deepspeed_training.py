"""deepspeed trains on our accelerator and ops as on its own, for every stage, backend and number of ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .deepspeed_train import WAYS

PROGRAM = Path(__file__).with_name("deepspeed_train.py")
OURS = ("-m", "anyaccel.integrations.deepspeed")


def _trained(folder: Path, ranks: int, backend: str, *through: str) -> dict[str, Any]:
    out = folder / "-".join([backend, str(ranks), "ours" if through else "stock"]) / "losses.json"
    out.parent.mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    finished = subprocess.run(
        [*torchrun, *through, PROGRAM, backend, out], capture_output=True, text=True, check=False, cwd=folder
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    trained: dict[str, Any] = json.loads(out.read_text())
    return trained


@pytest.fixture(scope="module", params=[1, 2], ids=["1 rank", "2 ranks"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("trained")
    return {
        "stock": _trained(folder, request.param, "gloo"),
        "gloo": _trained(folder, request.param, "gloo", *OURS),
        "shm": _trained(folder, request.param, "shm", *OURS),
    }


@pytest.mark.timeout(1800)  # stock deepspeed compiles five ops first
@pytest.mark.parametrize("backend", ["gloo", "shm"])
@pytest.mark.parametrize("way", WAYS)
def test_losses_are_stock_deepspeeds(trained: dict[str, dict[str, Any]], way: str, backend: str) -> None:
    assert trained["stock"]["accelerator"] == "deepspeed.accelerator.cpu_accelerator"
    assert trained[backend]["accelerator"] == "anyaccel.accelerator.cpu_accelerator"
    stock, ours = trained["stock"]["losses"][way], trained[backend]["losses"][way]
    tolerance = 0.0 if "torch's" in way or "bf16" in way else 1e-5
    assert ours["losses"] == pytest.approx(stock["losses"], rel=tolerance, abs=0)
    assert ours["resumed"] == pytest.approx(stock["resumed"], rel=tolerance, abs=0)
    assert ours["losses"][-1] < ours["losses"][0]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS)
def test_a_resumed_run_goes_on_where_it_was_saved(trained: dict[str, dict[str, Any]], way: str) -> None:
    ours = trained["gloo"]["losses"][way]
    assert ours["resumed"] == pytest.approx(ours["losses"][len(ours["resumed"]) :], rel=1e-6)
