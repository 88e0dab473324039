"""Installs an Arm wheel for an emulated Python, and runs every op that the wheel brought, without a compiler.

    python tests/arm/wheel.py dist/anyaccel-0.2.0-py3-none-manylinux_2_28_aarch64.whl [FOLDER]

Debian's Python for Arm is unpacked into the folder, ``build/arm`` by default. qemu runs it, and its own pip installs the
wheel and what the wheel requires on Arm. PyPI's later torches for Arm are CUDA builds of gigabytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
TORCH = "torch==2.10.0"
PACKAGES = "python3-venv,libstdc++6,ca-certificates"
EMULATOR = "qemu-aarch64-static"


def unpack_python(root: Path) -> None:
    """Unpack Debian's Python with the libraries that it needs; nothing of it runs, so no rights are needed."""
    command = [
        "mmdebstrap",
        "--quiet",
        "--variant=extract",
        "--architectures=arm64",
        f"--include={PACKAGES}",
        "bookworm",
    ]
    subprocess.run([*command, root], check=True)


def emulated(root: Path, *arguments: str | Path, **variables: str) -> None:
    """Run Debian's Python with arguments, and stop at a failure."""
    emulator = shutil.which(EMULATOR) or EMULATOR  # the ops run with a PATH that has nothing
    python = [emulator, "-L", root, root / "usr/bin/python3.11", "-W", "ignore"]
    environment = os.environ | {"PYTHONHOME": str(root / "usr"), "OMP_NUM_THREADS": "1"} | variables
    subprocess.run([*python, *arguments], check=True, env=environment)


def main() -> int:
    if len(sys.argv) not in (2, 3) or not Path(sys.argv[1]).is_file():
        print(__doc__)
        return 2
    missing = [tool for tool in ("mmdebstrap", EMULATOR) if shutil.which(tool) is None]
    if missing:
        print(f"got no {' and no '.join(missing)}. Fix: apt-get install mmdebstrap qemu-user-static")
        return 1
    wheel = Path(sys.argv[1]).resolve()
    folder = Path(sys.argv[2] if len(sys.argv) == 3 else "build/arm").resolve()
    root, site = folder / "root", folder / "site"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    unpack_python(root)
    pip = next((root / "usr/share/python-wheels").glob("pip-*.whl"))
    emulated(
        root, "-m", "pip", "install", "--quiet", "--no-compile", "--target", site, TORCH, wheel, PYTHONPATH=str(pip)
    )
    no_tools = {"PATH": "/nowhere", "CXX": "no-such-compiler", "ANYACCEL_CACHE_DIR": str(folder / "cache")}
    emulated(root, TESTS / "prebuilt_ops.py", PYTHONPATH=str(site), **no_tools)
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
