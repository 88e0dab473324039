"""The sdist alone: pip installs it in a new environment, and ``anyaccel demo`` trains there in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "DS_ACCELERATOR")
"""Variables with which the new environment would see this one."""
_LEFT = ("loss.png", "checkpoint.pt", "metrics.json")


def problems_of_sdist(sdist: Path, steps: int = 30) -> list[str]:
    """Return why a user who has only this file cannot run the demo.

    Args:
        sdist: the file, ``anyaccel-*.tar.gz``.
        steps: how long the demo trains.
    """
    with tempfile.TemporaryDirectory(prefix="an empty folder ") as name:
        folder = Path(name)
        work, venv = folder / "work", folder / "venv"
        work.mkdir()
        python = venv / "bin" / "python"
        same_torch = f"torch=={torch.__version__.split('+')[0]}"
        commands: Sequence[Sequence[str | Path]] = (
            (sys.executable, "-m", "venv", venv),
            (python, "-m", "pip", "install", "--quiet", same_torch, f"{sdist.resolve()}[demo]"),
            (venv / "bin" / "anyaccel", "demo", "--steps", str(steps)),
        )
        environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
        environment["ANYACCEL_CACHE_DIR"] = str(folder / "cache")
        for command in commands:
            finished = subprocess.run(
                command, cwd=work, env=environment, capture_output=True, text=True, check=False, encoding="utf-8"
            )
            if finished.returncode:
                said = (finished.stdout + finished.stderr).strip().splitlines()[-3:]
                return [" ".join([f"{Path(command[0]).name} {command[1]} failed:", *said])]
        missing = [file for file in _LEFT if not (work / "demo_out" / file).is_file()]
    return [f"the demo wrote no {', '.join(missing)}"] if missing else []
