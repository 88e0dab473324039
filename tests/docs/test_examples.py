"""Python blocks in the README and the docs run, page by page, in order; links to files exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


SLOW = ROOT / "examples" / "custom_op" / "README.md"
"""It compiles the same code as tests/examples/test_custom_op.py, which takes a minute."""


LAUNCHED = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""As a launcher would start the only rank, for pages with a program of several ranks."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=_name(page), marks=[pytest.mark.slow] if page == SLOW else [])
        for page in PAGES
        if BLOCK.search(page.read_text())
    ],
)
def test_examples_run(page: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    code = "\n".join(BLOCK.findall(page.read_text()))
    importable = {"PYTHONPATH": str(page.parent)} if page.is_relative_to(ROOT / "examples") else {}
    launched = LAUNCHED if "init_process_group(" in code else {}
    assert run_with_torch(code, DS_ACCELERATOR="cpu", **importable, **launched).returncode == 0


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    missing = [target for target in LINK.findall(prose) if not (page.parent / target).exists()]
    assert not missing
