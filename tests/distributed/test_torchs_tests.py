"""A few of torch's own distributed tests on shm; `make test-distributed-torch` runs all that are for CPUs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOME = {
    "gloo": [
        "test_ddp_logging_data_cpu", "test_all_gather_object_default_pg", "test_send_recv_any_source_autograd_profiler",
        "test_sparse_all_reduce_sum", "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
        "test_monitored_barrier_gloo_subgroup",
    ],
    "mpi": ["test_all_to_all_single_unequal_split_full_group"],
}  # fmt: skip


@pytest.mark.parametrize("of", SOME)
def test_torchs_own_tests_pass(of: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.distributed.torchs_tests", "--ranks", "2", "--of", of, *SOME[of]],
        capture_output=True, text=True, check=False, timeout=240, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert f"shm, 2 ranks: {len(SOME[of])} passed, 0 failed" in finished.stdout, finished.stdout + finished.stderr
    assert finished.returncode == 0
