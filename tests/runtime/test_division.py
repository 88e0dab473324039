"""Division as on a CUDA device, which has no 64-bit division in hardware, compared with Python's."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEAR = sorted(
    {(1 << bits) + by for bits in (0, 1, 3, 16, 31, 32, 33, 62) for by in (-1, 0, 1)} - {0} | {3, 10**12, 2**63 - 1}
)


@pytest.mark.parametrize("target", [pytest.param([], id="host"), pytest.param(["-D__CUDA_ARCH__=900"], id="cuda")])
def test_whole_and_rest_are_those_of_python(tmp_path: Path, target: list[str]) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    library = tmp_path / "division.so"
    source = Path(__file__).with_name("division.cpp")
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", f"-I{ROOT / 'csrc' / 'includes'}", *target]
    subprocess.run([compiler, *flags, source, "-o", library], check=True)
    divide = ctypes.CDLL(str(library)).divide
    divide.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    divide.restype = None
    results = (ctypes.c_int64 * 2)()
    for value, by in itertools.product([0, *NEAR], NEAR):
        divide(value, by, results)
        assert tuple(results) == divmod(value, by), (value, by)
