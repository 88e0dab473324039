"""CONTRIBUTING's list "A new op", followed to the letter for an op `square` in a copy of the project.

``created`` has the files of the list's first half; ``row.txt`` and ``front.txt`` are what its second half adds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from anyaccel.op_builder.engine.toolchains.nvrtc import probe_nvrtc
from tests import scratch_copy
from tests.scratch_copy import run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CREATED = [
    "csrc/includes/square.h", "csrc/square/square.cpp", "kernels/functions/square.py", "tests/ops/test_square.py",
    "benchmarks/kernel_cases/square.py",
]  # fmt: skip
EDITED = ("op_builder/table.py", "anyaccel/ops/functional.py")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the op."""
    root = scratch_copy.copied(ROOT, HERE, tmp_path_factory.mktemp("scratch"))
    table, functional = (root / "tree" / file for file in EDITED)
    scratch_copy.inserted(table, '    Op(\n        name="shm_comm"', (HERE / "row.txt").read_text())
    text = functional.read_text() + (HERE / "front.txt").read_text()
    functional.write_text(
        text.replace("__all__ = [\n", '__all__ = [\n    "square",\n').replace(
            "from .activations import", "import torch\n\nfrom .loading import loaded\nfrom .activations import"
        )
    )
    return scratch_copy.complete(root)


def test_the_list_names_what_is_created_and_edited() -> None:
    named = scratch_copy.named_in(ROOT / "CONTRIBUTING.md", "A new op", op="square")
    assert named == [*CREATED, *EDITED]
    assert len(CREATED) <= 5
    assert len(EDITED) <= 2


def test_every_file_that_is_created_is_in_the_list() -> None:
    assert scratch_copy.created(HERE) == sorted(CREATED)


def test_a_row_and_a_front_repeat_eight_lines_at_most() -> None:
    """The lines that another op would share: its row without the kernels, and the front's call."""
    row = [line for line in (HERE / "row.txt").read_text().splitlines() if "kernels=" not in line]
    assert len(row) <= 8


def test_it_is_built_for_the_cpu_and_sycl_and_passes_its_tests(scratch: Path) -> None:
    """Its own tests use every implementation available here, and run opcheck, gradcheck and the fuzzer's copy of its schema."""
    said = run(scratch, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops/test_square.py")
    assert " passed" in said
    assert "failed" not in said


@pytest.mark.skipif(probe_nvrtc().tool is None, reason=f"no NVRTC: {probe_nvrtc().detail}")
def test_it_is_compiled_for_gpus_that_are_elsewhere(scratch: Path) -> None:
    assert "1 passed" in run(  # for the target of make test
        scratch, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/op_builder/test_device_code.py",
        "-k", "test_every_kernel_compiles_for_every_generation and square",
    )  # fmt: skip


def test_the_fuzzer_and_the_commands_know_it(scratch: Path) -> None:
    said = run(scratch, "-m", "tests.fuzz", "--only", "square", "--op", "anyaccel::square", "--calls", "300")
    assert "anyaccel::square: 300 calls" in said
    assert " 0 findings" in said
    code = (
        "from anyaccel.op_builder import BUILDERS; from anyaccel.op_builder.kernel_loader import loader_names; "
        "from anyaccel.accelerator import get_accelerator; "
        "print('SquareBuilder' in BUILDERS, 'SquareLoader' in loader_names(), "
        "get_accelerator().create_op_builder('SquareBuilder').load().square.__name__)"
    )
    assert run(scratch, "-c", code).split() == ["True", "True", "square"]
