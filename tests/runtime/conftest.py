"""Headers of csrc that need no torch, compiled by themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that compiles a C++ file of this folder and returns the program, or the library with ``-shared``."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")

    def compile_file(name: str, *flags: str) -> Path:
        result = tmp_path_factory.mktemp(Path(name).stem) / Path(name).stem
        includes = [f"-I{ROOT / 'csrc' / folder}" for folder in ("includes", "runtime")]
        source = Path(__file__).with_name(name)
        subprocess.run([compiler, "-std=c++20", *flags, *includes, source, "-o", result], check=True)
        return result

    return compile_file
