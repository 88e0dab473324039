"""Kernels in tiles: the CUDA group's own source on the host, for aligned and misaligned rows, against the CPU's group."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TYPES = {"float32": 0, "bfloat16": 1, "float16": 2}


@pytest.fixture(scope="module")
def tiles(compiled: Callable[..., Path]) -> ctypes.CDLL:
    """tiles.cpp, which rounds sums and products separately, so that both groups round the same way."""
    flags = ("-O1", "-ffp-contract=off", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-w", "-shared", "-fPIC")
    loaded = ctypes.CDLL(str(compiled("tiles.cpp", *flags)))
    loaded.differing_results.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_int, ctypes.c_int]
    loaded.takes_tiles.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    loaded.takes_tiles.restype = loaded.tiles_are_kept.restype = ctypes.c_bool
    return loaded


@pytest.mark.parametrize("threads", [32, 64, 512])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("columns", "stride", "shift"),
    [
        pytest.param(1024, 1024, 0, id="tiles"),
        pytest.param(8, 8, 0, id="one tile"),
        pytest.param(1000, 2000, 0, id="halves of rows"),
        pytest.param(1024, 1024, 1, id="misaligned addresses"),
        pytest.param(1001, 1001, 0, id="rows that no tiles make up"),
        pytest.param(1000, 1001, 0, id="rows at odd distances"),
        pytest.param(1, 1, 0, id="one element"),
        pytest.param(4, 4, 0, id="less than a tile of 16-bit numbers"),
    ],
)
def test_kernels_in_tiles_give_what_the_cpu_gives(
    tiles: ctypes.CDLL, dtype: str, columns: int, stride: int, shift: int, threads: int
) -> None:
    assert tiles.differing_results(TYPES[dtype], columns, stride, shift, threads) == 0


def test_a_tile_is_stored_as_it_was_loaded_and_nothing_around_it(tiles: ctypes.CDLL) -> None:
    assert tiles.tiles_are_kept()


@pytest.mark.parametrize(
    ("past", "columns", "stride", "taken"),
    [
        (0, 8, 8, True),
        (16, 8, 16, True),
        (2, 8, 8, False),
        (8, 8, 8, False),
        (0, 12, 12, False),
        (0, 8, 9, False),
        (0, 1, 1, False),
    ],
)
def test_tiles_are_taken_only_where_every_row_is_aligned(
    tiles: ctypes.CDLL, past: int, columns: int, stride: int, taken: bool
) -> None:
    assert tiles.takes_tiles(past, columns, stride) is taken
