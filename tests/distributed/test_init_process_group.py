"""The backend that an accelerator names works with torch.distributed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import sys
import torch
import torch.distributed as dist

assert "anyaccel.distributed.shm" not in sys.modules
dist.init_process_group("shm")
total = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(total)
assert total.tolist() == [3.0] * 3, total
assert dist.get_backend() == "shm"
dist.destroy_process_group()
print("shm without our package", flush=True)

from anyaccel import get_accelerator

accelerator = get_accelerator()
accelerator.set_device(dist.get_node_local_rank())
dist.init_process_group(accelerator.communication_backend_name())
total = torch.full((3,), float(accelerator.current_device() + 1), device=accelerator.current_device_name())
dist.all_reduce(total)
assert total.tolist() == [3.0] * 3, total
assert accelerator.device_count() == dist.get_world_size() == 2
dist.destroy_process_group()
print("the accelerator's own backend", flush=True)
"""


def test_two_ranks_reduce_by_shm_without_our_package_and_by_what_the_accelerator_names(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(PROGRAM)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script]
    finished = subprocess.run(launcher, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    for line in ("shm without our package", "the accelerator's own backend"):
        assert finished.stdout.count(line) == 2
