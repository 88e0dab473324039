"""Programs run by torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def torchrun(code: str, ranks: int) -> None:
    """Run a program with a number of ranks; it must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(code)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        finished = subprocess.run(
            [*launcher, program], capture_output=True, text=True, check=False, env=environment, cwd=folder
        )
    assert finished.returncode == 0, finished.stdout + finished.stderr
