"""The comparison at the end of ``make test-deepspeed``: it fails if a test passes with stock deepspeed only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "ecosystem" / "outcomes.py"
TESTS = """
import os, pytest
ours = os.environ["SIDE"] == "ours"
class TestIt:
    def test_same(self): pass
    def test_better(self): assert ours
    def test_skipped(self): pytest.skip("needs a GPU")
"""
WORSE = """
    def test_worse(self): assert not ours
    if not ours:
        def test_missing(self): pass
"""


def _compare(folder: Path) -> tuple[int, list[str]]:
    command = [sys.executable, SCRIPT, folder / "stock", folder / "ours"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_what_passes_with_stock_only_is_listed_and_fails(tmp_path: Path) -> None:
    files = {
        "test_good": TESTS,
        "test_bad": TESTS + WORSE,
        "test_module": f"{TESTS}if not ours: pytest.skip(allow_module_level=True)",
    }
    (tmp_path / "unit").mkdir()
    for name, text in files.items():
        (tmp_path / "unit" / f"{name}.py").write_text(text)
    for side in ("stock", "ours"):
        environment = {**os.environ, "SIDE": side, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        for name in files:
            options = ["-c", "/dev/null", "--rootdir", ".", "--junitxml", f"{side}/{name}.xml"]
            command = [sys.executable, "-m", "pytest", *options, f"unit/{name}.py"]
            subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True)
    status, lines = _compare(tmp_path)
    assert status == 1
    assert lines[2:] == [
        "| unit/test_bad.py | 3 | 1 | 1 | 2 | 1 | 1 |",
        "| unit/test_good.py | 1 | 1 | 1 | 2 | 0 | 1 |",
        "| unit/test_module.py | 0 | 0 | 1 | 2 | 0 | 1 |",
        "4 pass with stock deepspeed; of them 2 do not with the integration; 4 others do",
        "unit/test_bad.py::TestIt.test_missing: not run",
        "unit/test_bad.py::TestIt.test_worse: failed",
    ]
    for side in ("stock", "ours"):
        (tmp_path / side / "test_bad.xml").unlink()
    assert _compare(tmp_path)[0] == 0
    (tmp_path / "stock" / "test_good.xml").unlink()
    assert _compare(tmp_path)[0] == 1
