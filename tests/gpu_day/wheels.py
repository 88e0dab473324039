"""Collects wheels for a machine that has torch and a GPU, but no network: ``make gpu-day-wheels``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
TESTS = ("hypothesis", "nvidia-cuda-sanitizer-api", "pytest", "pytest-timeout", "pytest-xdist", "setuptools")
WITH_TORCH = ("torch", "nvidia-cuda-nvrtc", "numpy")
"""Packages in torch's CUDA image. If NumPy, which is 16 MB, is missing, ``benchmarks/plot_bandwidth.py`` draws the plots later
on another machine."""
MOST_BYTES = 60_000_000
PLATFORMS = ("manylinux_2_28", "manylinux_2_25", "manylinux2014")
"""Of wheels; pip takes none for an older glibc than these name."""
PEERS = ("liger-kernel==0.8.5",)
"""Peers of our kernels; without their dependencies, torch and Triton, which the image has."""


def requirements() -> list[str]:
    """Return the packages to collect: the project's dependencies, its CUDA extra, the test runner and plots, without torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    pinned = [line for line in extras["test-without-cuda"] if line.partition("==")[0].partition(">")[0] in TESTS]
    wanted = [*project["dependencies"], *extras["cuda"], *extras["demo"], *pinned]
    return [line for line in wanted if not line.startswith(WITH_TORCH)]


def main(folder: str, python: str) -> None:
    """Download them for Linux on x86-64 and a Python, such as ``3.12``; nothing is compiled."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest", folder]
    command += ["--python-version", python]
    for platform in PLATFORMS:
        command += ["--platform", f"{platform}_x86_64"]
    subprocess.run([*command, *requirements()], check=True)
    subprocess.run([*command, "--no-deps", *PEERS], check=True)
    for wheel in Path(folder).glob("numpy-*.whl"):  # which matplotlib brings
        wheel.unlink()
    sizes = [wheel.stat().st_size for wheel in Path(folder).glob("*.whl")]
    print(f"{len(sizes)} wheels in {folder}, {sum(sizes) / 1e6:.1f} MB")
    if sum(sizes) > MOST_BYTES:
        sys.exit(
            f"collecting wheels failed: they are larger than {MOST_BYTES / 1e6:.0f} MB. Fix: remove old ones from {folder}."
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
