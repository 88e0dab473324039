"""Builds ``kernels.cpp`` for this machine and for Arm, runs both, and compares their results.

    python tests/arm/compare.py [COMPILER [EMULATOR]]

by default Debian's ``aarch64-linux-gnu-g++`` and ``qemu-aarch64``, or ``qemu-aarch64-static``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
FLAGS = ["-O3", "-std=c++20", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-Wall", "-Wextra", "-static"]
TOLERANCE = 2e-2
"""Relative to the largest magnitude: one bfloat16 step, as the two may round a value in the middle differently."""


def output(compiler: str, march: str, emulator: list[str], folder: Path) -> np.ndarray:
    """Return the output of the program, built by a compiler and run by an emulator."""
    program = folder / f"kernels-{Path(compiler).name}"
    includes = [f"-I{ROOT / 'csrc' / name}" for name in ("includes", "runtime")]
    source = Path(__file__).with_name("kernels.cpp")
    subprocess.run([compiler, *FLAGS, march, *includes, source, "-o", program], check=True)
    return np.frombuffer(subprocess.run([*emulator, program], check=True, capture_output=True).stdout, np.float32)


def main() -> int:
    compiler = sys.argv[1] if len(sys.argv) > 1 else "aarch64-linux-gnu-g++"
    emulators = sys.argv[2:3] or ["qemu-aarch64", "qemu-aarch64-static"]
    emulator = next((found for name in emulators if (found := shutil.which(name))), None)
    if shutil.which(compiler) is None or emulator is None:
        print(f"got no {compiler} or no {emulators[0]}. Fix: apt-get install g++-aarch64-linux-gnu qemu-user")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        mine = output("g++", "-march=native", [], Path(folder))
        arm = output(compiler, "-march=armv8.2-a", [emulator], Path(folder))
    assert mine.shape == arm.shape, (mine.shape, arm.shape)
    assert np.isfinite(mine).all()
    assert np.isfinite(arm).all()
    difference = np.abs(mine - arm) / np.maximum(1.0, np.abs(mine))
    exact = float((difference < 1e-5).mean())
    print(f"{mine.size} numbers; {exact:.2%} agree to 1e-5, the largest difference is {difference.max():.2g}")
    return int(difference.max() > TOLERANCE or exact < 0.99)


if __name__ == "__main__":
    sys.exit(main())
