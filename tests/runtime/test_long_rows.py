"""Rows of 2 ** 31 columns or more, as a device with tiles takes them: positions in a row are 64-bit."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def long_rows(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    library = tmp_path_factory.mktemp("long_rows") / "long_rows.so"
    includes = [f"-I{ROOT / 'csrc' / folder}" for folder in ("includes", "runtime")]
    flags = ["-std=c++20", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-w", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, *includes, Path(__file__).with_name("long_rows.cpp"), "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
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
