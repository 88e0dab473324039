"""The sdist has every file that a wheel, and a user who has nothing else, needs; its bytes depend on nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from .sdist import problems_of_sdist

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this checkout, from a copy, because setuptools writes next to the sources."""
    return _built(_copy(tmp_path_factory.mktemp("sdist") / "source"))


def _copy(source: Path) -> Path:
    ignored = shutil.ignore_patterns(
        ".git", ".venv*", ".*cache*", "__pycache__", ".hypothesis", "build", "dist", "*.egg-info", "demo_out"
    )
    return Path(shutil.copytree(ROOT, source, ignore=ignored))


def _built(source: Path, umask: int = 0o022) -> Path:
    folder = source.with_name(f"{source.name}.dist")
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, folder], cwd=source, check=True, capture_output=True, umask=umask)
    (built,) = folder.glob("anyaccel-*.tar.gz")
    return built


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone")
def test_it_has_every_file_that_git_has(sdist: Path) -> None:
    """Its tests need them; a list that is kept by hand forgets one."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    in_git = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert not in_git - held


def test_two_builds_in_different_places_and_at_different_times_have_the_same_bytes(sdist: Path, tmp_path: Path) -> None:
    source = _copy(tmp_path / "a folder of another name")
    for file in source.rglob("*"):
        file.chmod(file.stat().st_mode & ~0o077)
        os.utime(file, (1_600_000_000, 1_600_000_000))
    assert _built(source, umask=0o077).read_bytes() == sdist.read_bytes()


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
