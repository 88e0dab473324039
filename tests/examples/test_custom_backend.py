"""The dummy backend of torch's tutorial, as its page shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..quick_compiler import quick_compiler

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_backend"


def test_each_device_has_its_backend(tmp_path: Path) -> None:
    launcher = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    finished = subprocess.run(
        [*launcher, EXAMPLE / "dispatch.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **quick_compiler(tmp_path / "bin")},
    )
    assert finished.returncode == 0, finished.stderr
    for line in ("cpu: gloo", "cuda: dummy", "summed by gloo: [2.0, 2.0, 2.0]", "zeroed by dummy: [0.0, 0.0, 0.0]"):
        assert finished.stdout.count(line) == 2, finished.stdout


def test_the_backend_is_a_page_long() -> None:
    files = [file for file in EXAMPLE.iterdir() if file.suffix in (".cpp", ".py")]
    assert sum(len(file.read_text().splitlines()) for file in files) < 120
