"""CONTRIBUTING's list "A new op", followed to the letter for an op `square` in a copy of the project.

``created`` holds the files of the list's first half, ``row.txt`` and ``front.txt`` what its second half adds to existing ones.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anyaccel.op_builder.engine.toolchains.nvrtc import probe_nvrtc

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CREATED = sorted(file.relative_to(HERE / "created") for file in (HERE / "created").rglob("*") if file.is_file())
EDITED = ("op_builder/table.py", "anyaccel/ops/functional.py")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the op: the package assembled in ``site``, as a wheel has it, and the tests beside it."""
    root = tmp_path_factory.mktemp("scratch")
    ignored = shutil.ignore_patterns("__pycache__", "_C")
    for folder in ("anyaccel", "op_builder", "accelerator", "csrc", "kernels", "benchmarks"):
        shutil.copytree(ROOT / folder, root / "tree" / folder, ignore=ignored)
    shutil.copytree(ROOT / "tests", root / "tests", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", root)
    for file in CREATED:
        target = root / file if file.parts[0] == "tests" else root / "tree" / file
        target.parent.mkdir(exist_ok=True)
        shutil.copy(HERE / "created" / file, target)
    table, functional = (root / "tree" / file for file in EDITED)
    before = '    Op(\n        name="shm_comm"'
    text = table.read_text()
    assert text.count(before) == 1
    table.write_text(text.replace(before, (HERE / "row.txt").read_text() + before))
    text = functional.read_text() + (HERE / "front.txt").read_text()
    functional.write_text(
        text.replace("__all__ = [\n", '__all__ = [\n    "square",\n').replace(
            "from .activations import", "import torch\n\nfrom .loading import loaded\nfrom .activations import"
        )
    )
    package = root / "site" / "anyaccel"
    shutil.copytree(root / "tree" / "anyaccel", package)
    for folder in ("op_builder", "accelerator", "csrc", "kernels", "benchmarks"):
        (package / folder).symlink_to(root / "tree" / folder)
    return root


def _run(scratch: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(scratch / "site")}
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=scratch, env=environment, capture_output=True, text=True, encoding="utf-8",
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    return ended.stdout


def test_the_list_names_what_is_created_and_edited() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index("## A new op") :].partition("\n## ")[0]
    named = [
        name.replace("<op>", "square")
        for name in re.findall(r"^\d+\. (?:Create|Edit) `([^`]+)`", section, re.MULTILINE)
    ]
    assert named == [*(str(file) for file in CREATED_IN_ORDER), *EDITED]
    assert len(CREATED) <= 5
    assert len(EDITED) <= 2


CREATED_IN_ORDER = [
    "csrc/includes/square.h", "csrc/square/square.cpp", "kernels/functions/square.py", "tests/ops/test_square.py",
    "benchmarks/kernel_cases/square.py",
]  # fmt: skip


def test_every_file_that_is_created_is_in_the_list() -> None:
    assert sorted(map(str, CREATED)) == sorted(CREATED_IN_ORDER)


def test_a_row_and_a_front_repeat_eight_lines_at_most() -> None:
    """What another op would have too: its row without the kernels, and the front's call."""
    row = [line for line in (HERE / "row.txt").read_text().splitlines() if "kernels=" not in line]
    assert len(row) <= 8


def test_it_is_built_for_the_cpu_and_sycl_and_passes_its_tests(scratch: Path) -> None:
    """Its own tests take every implementation that is here, and run opcheck, gradcheck and the fuzzer's copy of its schema."""
    said = _run(scratch, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops/test_square.py")
    assert " passed" in said
    assert "failed" not in said


@pytest.mark.skipif(probe_nvrtc().tool is None, reason=f"no NVRTC: {probe_nvrtc().detail}")
def test_it_is_compiled_for_gpus_that_are_elsewhere(scratch: Path) -> None:
    assert "1 passed" in _run(
        scratch, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/op_builder/test_device_code.py",
        "-k", "test_every_kernel_compiles_for_every_generation and square",
    )  # fmt: skip


def test_the_fuzzer_and_the_commands_know_it(scratch: Path) -> None:
    said = _run(scratch, "-m", "tests.fuzz", "--only", "square", "--op", "anyaccel::square", "--calls", "300")
    assert "anyaccel::square: 300 calls" in said
    assert " 0 findings" in said
    code = (
        "from anyaccel.op_builder import BUILDERS; from anyaccel.op_builder.kernel_loader import loader_names; "
        "from anyaccel.accelerator import get_accelerator; "
        "print('SquareBuilder' in BUILDERS, 'SquareLoader' in loader_names(), "
        "get_accelerator().create_op_builder('SquareBuilder').load().square.__name__)"
    )
    assert _run(scratch, "-c", code).split() == ["True", "True", "square"]
