"""ZeRO-Infinity, ZeRO++, ZenFlow, random-LTD and the fast file writer run on a CPU with our ops.

Stock deepspeed supports them only on GPUs or with further packages, except for ZenFlow.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("deepspeed_features.py")
EVERY_PROCESS = Path(__file__).with_name("every_process")  # ZenFlow's optimizer is a separate process


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @functools.cache
    def trained(way: str, ranks: int, backend: str = "gloo", *, ours: bool = True) -> dict[str, Any]:
        out = tmp_path_factory.mktemp("trained") / "losses.json"
        environment = {**os.environ, "LOCAL_SIZE": str(min(ranks, 2))}  # ranks of a node; four are two nodes
        if ours:
            environment["PYTHONPATH"] = str(EVERY_PROCESS)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
        finished = subprocess.run(
            [*torchrun, PROGRAM, way, backend, out], capture_output=True, text=True, check=False, cwd=out.parent,
            env=environment,
        )  # fmt: skip
        assert finished.returncode == 0, finished.stdout + finished.stderr
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    return trained


def test_optimizer_and_parameters_in_files_lose_nothing(train: Any) -> None:
    assert train("files", 2)["losses"] == train("stage 3", 2)["losses"]


@pytest.mark.parametrize(
    ("way", "ranks", "tolerance"),
    [("quantized weights", 2, 1e-3), ("quantized gradients", 4, 5e-3), ("ZeRO++", 4, 5e-3)],
)
def test_quantized_communication_trains_as_exact_does(train: Any, way: str, ranks: int, tolerance: float) -> None:
    quantized, exact = train(way, ranks, "shm")["losses"], train("stage 3", ranks, "shm")["losses"]
    assert quantized != exact
    assert quantized == pytest.approx(exact, rel=tolerance)


@pytest.mark.timeout(1800)  # stock deepspeed compiles its Adam first
@pytest.mark.parametrize("ranks", [1, 2])
def test_zenflow_has_stock_losses(train: Any, ranks: int) -> None:
    """Steps of the optimizer process overlap with the next ones, so losses depend on timing: stock's differ from run to run."""
    ours, stock = (train("ZenFlow", ranks, ours=is_ours)["losses"] for is_ours in (True, False))
    assert ours[:6] == stock[:6]
    assert ours == pytest.approx(stock, rel=3e-2)


def test_layers_see_the_tokens_that_are_kept(train: Any) -> None:
    found = train("token dropping", 2)
    kept = [8] * 4 + [12] * 4 + [16] * 4
    assert found["seen"] == [kept, kept, [16] * 12]
    assert found["losses"][-1] < 0.8 * found["losses"][0]


WRITES = """
import anyaccel.integrations.deepspeed
import torch
from deepspeed.io import FastFileWriter, FastFileWriterConfig
from deepspeed.ops.op_builder import AsyncIOBuilder

handle = AsyncIOBuilder().load().aio_handle(1 << 16, 8, False, True, 2)
pinned = handle.new_cpu_locked_tensor(1 << 18, torch.empty(0, dtype=torch.uint8))
state = {"a": torch.randn(1000, 777), "b": [torch.arange(12345), "text"], "c": torch.randn(3, 5).bfloat16()}
for double in (False, True):
    for is_zip in (False, True):
        config = FastFileWriterConfig(
            dnvme_handle=handle, pinned_tensor=pinned, double_buffer=double, num_parallel_writers=1, writer_rank=0, global_rank=0
        )
        file = f"{double}-{is_zip}.pt"
        writer = FastFileWriter(file, config)
        torch.save(state, writer, _use_new_zipfile_serialization=is_zip)
        writer.close()
        back = torch.load(file)
        assert torch.equal(back["a"], state["a"]) and torch.equal(back["c"], state["c"])
        assert torch.equal(back["b"][0], state["b"][0]) and back["b"][1] == "text"
"""


def test_the_fast_file_writer_writes_what_torch_loads(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WRITES], check=True, cwd=tmp_path)
