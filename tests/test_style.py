"""The linters and the type checker, as the pre-commit hooks run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def _check(*command: str | Path, cwd: Path = ROOT, **env: str) -> None:
    finished = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_ruff_finds_nothing() -> None:
    _check(BIN / "ruff", "check", ".")


def test_python_is_formatted() -> None:
    _check(BIN / "ruff", "format", "--check", ".")


def test_native_code_is_formatted() -> None:
    files = [
        file
        for root in ("csrc", "examples")
        for file in (ROOT / root).rglob("*")
        if file.suffix in (".h", ".cpp", ".cu", ".hip")
    ]
    _check(BIN / "clang-format", "--dry-run", "-Werror", *files)


@pytest.mark.timeout(600)
def test_installed_package_passes_mypy_strict(installed_wheel: Path, tmp_path: Path) -> None:
    cache = tmp_path / "mypy"
    config = ROOT / "pyproject.toml"
    _check(
        sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", cache, "-p", "anyaccel",
        cwd=tmp_path, MYPYPATH=str(installed_wheel),
    )  # fmt: skip
