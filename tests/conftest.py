"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anyaccel.accelerator import real_accelerator

from .programs import run_program
from .scratch_copy import copied_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


ROOT = Path(__file__).parents[1]

# A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


gc.disable()  # until all tests are known

LONG = ("test_wheel.py", "test_style.py")
"""Files of a test that takes half a minute or more, and whose place is at the end."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long files first, so that no worker waits for one in the end; the others keep their order."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Take what lives as long as the process, torch and all tests, out of every search for garbage."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def undetected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test starts without a chosen accelerator, independent of the environment and of other tests."""
    for variable in ("DS_ACCELERATOR", "LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    real_accelerator._current = real_accelerator._detected = None
    yield
    real_accelerator._current = real_accelerator._detected = None
    # Each permanently changes classes of its process: a test that needs one runs it in a new process.
    assert not {"deepspeed", "anyaccel.integrations.deepspeed"} & set(sys.modules)


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python code in a new process, outside the checkout; it must succeed unless ``check=False``."""

    def run(code: str, *arguments: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        finished = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **env},
            check=False,
        )
        assert not check or finished.returncode == 0, finished.stdout + finished.stderr
        return finished

    return run


@pytest.fixture
def run_with_torch(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """As ``run_python``, in a process that has imported torch: for code in which torch's own import plays no part."""

    def run(code: str, *arguments: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        finished = run_program(code, arguments, {**os.environ, **env}, tmp_path)
        assert not check or finished.returncode == 0, finished.stdout + finished.stderr
        return finished

    return run


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, built from a copy so that the build leaves nothing in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = copied_sources(ROOT, folder / "source")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        source,
    ]
    subprocess.run(command, check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed, for PYTHONPATH."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "-t", folder, wheel], check=True)
    return folder
