"""Rows of 2 ** 31 columns or more, as a device with tiles takes them: positions in a row are 64-bit."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def long_rows(compiled: Callable[..., Path]) -> ctypes.CDLL:
    flags = ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-w", "-shared", "-fPIC")
    loaded = ctypes.CDLL(str(compiled("long_rows.cpp", *flags)))
    for function in (loaded.share_of_a_tile, loaded.share_of_a_float_tile):
        function.argtypes = [ctypes.c_int64, ctypes.c_bool]
        function.restype = ctypes.c_float
    return loaded


@pytest.mark.parametrize("columns", [1 << 20, (1 << 31) - 8, 1 << 31, 3 << 30, 1 << 32, 1 << 33])
def test_every_tile_of_a_row_has_its_share(long_rows: ctypes.CDLL, columns: int) -> None:
    for share, tile in ((long_rows.share_of_a_tile, 8), (long_rows.share_of_a_float_tile, 4)):
        first = share(columns, False)
        if first < 0:
            pytest.skip("the system gives no process so many addresses")
        assert first == share(columns, True) == 1 / (2 * tile)
