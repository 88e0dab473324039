"""The site builds without a warning: `make docs`, for every page and every docstring on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="Sphinx needs Python 3.11")

DOCS = Path(__file__).parents[2] / "docs"


def test_the_pages_build_without_a_warning_and_can_be_copied_from_and_edited(tmp_path: Path) -> None:
    site = tmp_path / "html"
    command = [sys.executable, "-m", "sphinx", "-n", "-W", "--keep-going", "-q", "-b", "html", DOCS, site]
    told = {**os.environ, "DOCS_SOURCES": "https://example.org/anyaccel/blob/main/docs/{filename}"}
    finished = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", env=told)
    assert finished.returncode == 0, finished.stderr
    page = (site / "shm.html").read_text(encoding="utf-8")
    assert "copybutton" in page
    assert "https://example.org/anyaccel/edit/main/docs/shm.md" in page
    assert (site / "searchindex.js").stat().st_size > 100_000
