"""The elementary functions of HIP's device code, on the host, against its C library in long double."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_UNITS = {
    "exp": 2, "exp_near_zero": 2, "exp_subnormal": 2, "erf": 64, "erf_near_zero": 4, "expm1": 1, "expm1_near_zero": 1,
}  # fmt: skip
"""In units in the last place; 64 of them are 1.4e-14, and float64 is for checking gradients."""


@pytest.mark.parametrize("optimised", ["-O0", "-O2"])
def test_errors_are_within_what_is_promised(tmp_path: Path, optimised: str) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = tmp_path / "hip_math"
    source = Path(__file__).with_name("hip_math.cpp")
    command = [compiler, "-std=c++20", optimised, f"-I{ROOT / 'csrc' / 'runtime'}", source, "-o", program]
    subprocess.run(command, check=True)
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    found = dict(line.split() for line in said.splitlines())
    assert found.pop("special") == "1"
    assert set(found) == set(MOST_UNITS)
    assert not {name: units for name, units in found.items() if float(units) > MOST_UNITS[name]}
