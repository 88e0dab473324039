"""The rehearsal with a pretended GPU, as far as it needs no CUDA build of torch: what it compiles, and how it reads a log."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from .rehearsal import failures
from .stand_in.build import stubs, symbols

LOG = """
FAILED tests/ops/test_sgd.py::test_a_step[cuda] - AssertionError: Tensor-likes are not close!
FAILED tests/ops/test_sgd.py::test_b[cuda] - assert 1 == 2
FAILED tests/ops/test_sgd.py::test_c[cuda-1] - AttributeError: no 'x' in 17 rows
FAILED tests/ops/test_sgd.py::test_c[cuda-2] - AttributeError: no 'x' in 18 rows
ERROR tests/ops/test_adam.py::test_d[cuda - 3] - RuntimeError: CUDA error
FAILED tests/ops/test_sgd.py::test_e[cuda] - RuntimeError: numel: integer multiplication overflow
FAILED tests/ops/test_dense.py::test_f[cuda] - RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED
3 failed
"""


def test_failures_that_a_stand_in_must_have_are_counted_apart_and_others_by_kind() -> None:
    found = failures(LOG)
    assert [*found.expected.values()] == [2, 1, 1]
    assert dict(found.others) == {"AttributeError: no 'x' in # rows": 2, "RuntimeError: CUDA error": 1}


def test_a_generated_function_says_its_name_and_fails(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ for the stand-in")
    source, library = tmp_path / "stubs.cpp", tmp_path / "stubs.so"
    source.write_text(stubs({"cudaFirst", "cudaSecond"}), encoding="utf-8")
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    assert {"cudaFirst", "cudaSecond"} <= symbols(library)
    assert ctypes.CDLL(str(library)).cudaSecond() == 801
