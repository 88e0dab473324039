"""The site builds without a warning: `make docs`, for every page and every docstring on it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="Sphinx needs Python 3.11")

import anyaccel

DOCS = Path(__file__).parents[2] / "docs"


def _add(pages: Path, site: Path, version: str) -> None:
    """Publish, in a new process, as this version."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); from publish import *; publish(*map(Path, sys.argv[2:4]), sys.argv[4])"
    subprocess.run([sys.executable, "-c", code, DOCS, pages, site, version], check=True)


def test_the_pages_build_without_a_warning_and_can_be_copied_from_and_edited(tmp_path: Path) -> None:
    pages, site = tmp_path / "html", tmp_path / "a site"
    command = [sys.executable, "-m", "sphinx", "-n", "-W", "--keep-going", "-q", "-b", "html", DOCS, pages]
    told = {**os.environ, "DOCS_SOURCES": "https://example.org/anyaccel/blob/main/docs/{filename}"}
    finished = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", env=told)
    assert finished.returncode == 0, finished.stderr
    page = (pages / "shm.html").read_text(encoding="utf-8")
    assert "copybutton" in page
    assert "https://example.org/anyaccel/edit/main/docs/shm.md" in page
    assert (pages / "searchindex.js").stat().st_size > 100_000
    for page, root in (("shm", "./"), ("api/ops", "../")):
        menu = (
            rf'<select id="versions" data-root="{re.escape(root)}"><option>{re.escape(anyaccel.__version__)}</option>'
        )
        text = (pages / f"{page}.html").read_text(encoding="utf-8")
        assert re.search(menu, text)
        assert "_static/versions.js" in text
    (site / "figures").mkdir(parents=True)  # of the host's own
    for version in ("0.2.0", "0.10.0", "0.2.0", "0.11.0rc1"):
        _add(pages, site, version)
    assert json.loads((site / "versions.json").read_text(encoding="utf-8")) == ["0.11.0rc1", "0.10.0", "0.2.0"]
    assert "url=0.10.0/" in (site / "index.html").read_text(encoding="utf-8")
    assert (site / "0.2.0" / "api" / "ops.html").is_file()


def test_a_folder_without_pages_is_not_published(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, DOCS / "publish.py", tmp_path, tmp_path / "site"], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 1
    assert "Fix: make docs." in finished.stderr
    assert not (tmp_path / "site").exists()
