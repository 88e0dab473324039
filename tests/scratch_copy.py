"""Copies of the project: to build from, and for the tests of CONTRIBUTING's lists, which create and edit files there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["complete", "copied", "copied_sources", "created", "inserted", "named_in", "run"]

_FOLDERS = ("anyaccel", "op_builder", "accelerator", "csrc", "kernels", "benchmarks")


def created(here: Path) -> list[str]:
    """Return the files in a test's folder ``created``, relative to it."""
    folder = here / "created"
    return sorted(
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    )


def copied(root: Path, here: Path, to: Path) -> Path:
    """Copy the project's packages to ``to / "tree"`` and its tests next to them, with a test's files in ``created``."""
    ignored = shutil.ignore_patterns("__pycache__", "_C")
    for folder in _FOLDERS:
        shutil.copytree(root / folder, to / "tree" / folder, ignore=ignored)
    shutil.copytree(root / "tests", to / "tests", ignore=ignored)
    shutil.copy(root / "pyproject.toml", to)
    for file in created(here):
        target = to / file if file.startswith("tests/") else to / "tree" / file
        target.parent.mkdir(exist_ok=True)
        shutil.copy(here / "created" / file, target)
    return to


def copied_sources(root: Path, to: Path) -> Path:
    """Copy what a wheel is built from, so that the build leaves nothing in the checkout."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info", "demo_out")
    return Path(shutil.copytree(root, to, ignore=ignored))


def inserted(file: Path, before: str, text: str) -> None:
    """Insert a text into a file before another text, which must occur once."""
    content = file.read_text(encoding="utf-8")
    assert content.count(before) == 1, f"{file} has {content.count(before)} times: {before}"
    file.write_text(content.replace(before, text + before), encoding="utf-8")


def complete(scratch: Path) -> Path:
    """Assemble the package of a copy in ``site``, like a wheel, after its files are edited."""
    package = scratch / "site" / "anyaccel"
    shutil.copytree(scratch / "tree" / "anyaccel", package)
    for folder in _FOLDERS[1:]:
        (package / folder).symlink_to(scratch / "tree" / folder)
    return scratch


def run(scratch: Path, *arguments: str) -> str:
    """Run Python with a copy's package, and return its output; the test fails if Python fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(scratch / "site"), str(scratch)))}
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=scratch, env=environment, capture_output=True, text=True, encoding="utf-8",
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    return ended.stdout


def named_in(contributing: Path, heading: str, **names: str) -> list[str]:
    """Return the files that a numbered list of CONTRIBUTING creates and edits, in order.

    Args:
        contributing: the file.
        heading: the heading of the list's section.
        names: the replacements for ``<op>`` or ``<device>``.
    """
    text = contributing.read_text(encoding="utf-8")
    section = text[text.index(f"## {heading}\n") :].partition("\n## ")[0]
    items = re.findall(r"^\d+\. (?:Create|Edit) (.*?)(?=^\d+\. |^\S|\Z)", section, re.MULTILINE | re.DOTALL)
    files = [file for item in items for file in re.findall(r"`([^`]+)`", item.partition(": ")[0])]
    for placeholder, name in names.items():
        files = [file.replace(f"<{placeholder}>", name) for file in files]
    return files
