"""Runs every benchmark, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

for script in sorted(Path(__file__).parent.glob("bench_*.py")):
    subprocess.run([sys.executable, script], check=True)
