"""The elementary functions of HIP's device code, on the host, against its C library in long double."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST_UNITS = {
    "exp": 2, "exp_near_zero": 2, "exp_subnormal": 2, "erf": 64, "erf_near_zero": 4, "expm1": 1, "expm1_near_zero": 1,
}  # fmt: skip
"""In units in the last place; 64 of them are 1.4e-14, and float64 is for checking gradients."""


@pytest.mark.parametrize("optimised", ["-O0", "-O2"])
def test_errors_are_within_what_is_promised(compiled: Callable[..., Path], optimised: str) -> None:
    said = subprocess.run([compiled("hip_math.cpp", optimised)], check=True, capture_output=True, text=True).stdout
    found = dict(line.split() for line in said.splitlines())
    assert found.pop("special") == "1"
    assert set(found) == set(MOST_UNITS)
    assert not {name: units for name, units in found.items() if float(units) > MOST_UNITS[name]}
