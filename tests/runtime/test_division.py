"""Division as on a CUDA device, which has no 64-bit division in hardware, compared with Python's."""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NEAR = sorted(
    {(1 << bits) + by for bits in (0, 1, 3, 16, 31, 32, 33, 62) for by in (-1, 0, 1)} - {0} | {3, 10**12, 2**63 - 1}
)


@pytest.mark.parametrize("target", [pytest.param([], id="host"), pytest.param(["-D__CUDA_ARCH__=900"], id="cuda")])
def test_whole_and_rest_are_those_of_python(compiled: Callable[..., Path], target: list[str]) -> None:
    divide = ctypes.CDLL(str(compiled("division.cpp", "-O1", "-shared", "-fPIC", *target))).divide
    divide.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    divide.restype = None
    results = (ctypes.c_int64 * 2)()
    for value, by in itertools.product([0, *NEAR], NEAR):
        divide(value, by, results)
        assert tuple(results) == divmod(value, by), (value, by)
