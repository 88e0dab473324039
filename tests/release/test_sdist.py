"""The sdist has every file that a wheel, and a user who has nothing else, needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .sdist import problems_of_sdist

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this checkout, from a copy, because setuptools writes next to the sources."""
    folder = tmp_path_factory.mktemp("sdist")
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "demo_out"))
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, folder], cwd=source, check=True, capture_output=True)
    (built,) = folder.glob("anyaccel-*.tar.gz")
    return built


def test_a_wheel_from_the_sdist_has_the_files_of_one_from_the_checkout(
    sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path]
    subprocess.run([*pip, sdist], check=True)
    (from_sdist,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(from_sdist) as ours, zipfile.ZipFile(wheel) as checkouts:
        assert set(ours.namelist()) == set(checkouts.namelist())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_runs_in_a_new_environment_from_the_sdist_alone(sdist: Path) -> None:
    assert problems_of_sdist(sdist) == []
