"""The fixtures and the marker of every pytest run with anyaccel installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

TESTS = """
import pytest, torch

def test_fixture(accelerator):
    assert torch.ones(2, device=accelerator.device_name()).device.type == accelerator.device_name() == "cpu"

@pytest.mark.requires_accelerator("cuda", "xpu")
def test_marked():
    raise AssertionError

@pytest.mark.requires_accelerator()
class TestDevice:
    def test_of_a_marked_class(self):
        raise AssertionError

@pytest.mark.requires_accelerator("cpu")
def test_runs():
    pass

def test_by_fixture(requires_accelerator):
    requires_accelerator("cpu")
    requires_accelerator("cuda")
    raise AssertionError
"""


def test_tests_of_other_accelerators_are_skipped_with_the_reason(
    run_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    code = (
        "import pytest; raise SystemExit(pytest.main(['-q', '-rs', '-W', 'error', '--strict-markers', 'test_it.py']))"
    )
    said = run_python(code, DS_ACCELERATOR="cpu").stdout
    assert "2 passed, 3 skipped" in said
    assert "needs the accelerator cuda or xpu; here it is cpu" in said
    assert "needs the accelerator of a device; here it is cpu" in said


@pytest.mark.parametrize("given", ["name='cuda'", "'CUDA'", "'cuda:0'", "1"])
@pytest.mark.parametrize("how", ["marker", "fixture"])
def test_what_names_no_device_is_refused(
    run_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, given: str, how: str
) -> None:
    of_marker = f"import pytest\n@pytest.mark.requires_accelerator({given})\ndef test(): pass"
    of_fixture = f"def test(requires_accelerator): requires_accelerator({given})"
    (tmp_path / "test_it.py").write_text(of_marker if how == "marker" else of_fixture)
    code = "import pytest; raise SystemExit(pytest.main(['-q', 'test_it.py']))"
    finished = run_python(code, check=False, DS_ACCELERATOR="cpu")
    assert finished.returncode == 1
    assert "without an index. Fix: requires_accelerator('cuda', 'xpu')" in finished.stdout


def test_pytest_starts_without_torch(
    run_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text("def test(): import sys; assert 'torch' not in sys.modules")
    run_python("import pytest; raise SystemExit(pytest.main(['-q', 'test_it.py']))")
