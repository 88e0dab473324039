"""Launch shapes are pure functions of sizes and of a device's units: they can be tested without a device."""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CPU, SYCL_ON_HOST, CUDA, XPU = 0, 1, 2, 3  # of Runtime
ELEMENTS = -1  # for the rows of a work that has none
H100, H200, RTX, UNKNOWN = 114, 132, 24, 0
SIZES = sorted({size + by for size in (1, 32, 256, 1000, 4096, 10**5, 10**7, 10**10) for by in (-1, 0, 1)} - {0})


@pytest.fixture(scope="module")
def shapes(compiled: Callable[..., Path]) -> ctypes.CDLL:
    """The functions of launch_shape.h."""
    loaded = ctypes.CDLL(str(compiled("launch_shape.cpp", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")))
    for name, count in (("shape_of", 3), ("with_partials", 2), ("parts_of_a_row", 2), ("heads_of_a_group", 3)):
        function = getattr(loaded, name)
        function.restype = ctypes.c_int64
        function.argtypes = [ctypes.c_int32, ctypes.c_int32, *[ctypes.c_int64] * count]
    loaded.shape_of_tensors.restype = ctypes.c_int64
    loaded.shape_of_tensors.argtypes = [ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    loaded.shape_of_column_sums.restype = ctypes.c_int64
    loaded.shape_of_column_sums.argtypes = [*loaded.parts_of_a_row.argtypes, ctypes.c_void_p]
    loaded.has_tensors.restype = ctypes.c_bool
    loaded.has_tensors.argtypes = [ctypes.c_int64, ctypes.c_int64]
    loaded.threads_for_tiles.argtypes = [ctypes.c_int32, ctypes.c_int64, ctypes.c_int64]
    loaded.groups_of_a_block.argtypes = loaded.shape_of.argtypes
    loaded.shape_of.argtypes = [*loaded.shape_of.argtypes, ctypes.c_void_p]
    return loaded


def _shape(
    shapes: ctypes.CDLL, units: int, rows: int, columns: int, groups: int = 0, runtime: int = CUDA
) -> tuple[int, int]:
    threads = ctypes.c_int32()
    return shapes.shape_of(runtime, units, rows, columns, groups, ctypes.byref(threads)), threads.value


@pytest.mark.parametrize(
    ("rows", "columns", "groups", "of_a_block"),
    [
        pytest.param(10**6, 64, 0, 8, id="many short rows"),
        pytest.param(8 * H200, 128, 0, 8, id="enough for every unit"),
        pytest.param(8 * H200 - 1, 128, 0, 7, id="fewer, so that none is idle"),
        pytest.param(H200, 64, 0, 1, id="one for each unit"),
        pytest.param(1, 64, 0, 1, id="one row"),
        pytest.param(10**6, 129, 0, 1, id="rows of more than a warp"),
        pytest.param(10**6, 64, 264, 1, id="the kernel counts its groups"),
        pytest.param(ELEMENTS, 64, 0, 1, id="no rows"),
    ],
)
def test_warps_with_a_row_each_share_a_block(
    shapes: ctypes.CDLL, rows: int, columns: int, groups: int, of_a_block: int
) -> None:
    assert shapes.groups_of_a_block(CUDA, H200, rows, columns, groups) == of_a_block


@pytest.mark.parametrize(
    ("units", "columns", "shape"),
    [
        pytest.param(H200, 4096, (128, 32), id="4096: a warp each"),
        pytest.param(H200, 1, (1, 32), id="one element"),
        pytest.param(H200, 10_000, (157, 64), id="smaller groups before idle units"),
        pytest.param(H200, 40_000, (157, 256), id="fewer elements a thread before smaller groups"),
        pytest.param(H200, 132 * 1024, (132, 256), id="four elements a thread"),
        pytest.param(H200, 10**7, (9766, 256), id="large"),
        pytest.param(RTX, 4096, (32, 128), id="a small GPU"),
        pytest.param(UNKNOWN, 4096, (128, 32), id="unknown units are 128"),
        pytest.param(H200, 10**13, (0x7FFFFFFF, 256), id="no more than a grid may have"),
    ],
)
def test_elements_occupy_the_device(shapes: ctypes.CDLL, units: int, columns: int, shape: tuple[int, int]) -> None:
    assert _shape(shapes, units, ELEMENTS, columns) == shape


@pytest.mark.parametrize("units", [RTX, H100, H200, 1])
def test_every_unit_has_a_group_of_elements_and_no_group_is_without_work(shapes: ctypes.CDLL, units: int) -> None:
    for columns in SIZES:
        groups, threads = _shape(shapes, units, ELEMENTS, columns)
        assert groups >= min(units, -(-columns // 32))
        assert (groups - 1) * threads < columns
        assert threads in (32, 64, 128, 256)
        if groups < 0x7FFFFFFF:
            assert groups * threads * 4 >= columns


def test_a_rows_threads_depend_on_its_length_alone(shapes: ctypes.CDLL) -> None:
    """So does the order in which it is summed: a row's result is the same in every batch and on every GPU."""
    for columns, threads in ((1, 32), (128, 32), (129, 64), (1024, 256), (1025, 512), (65536, 512)):
        for rows, units, groups in itertools.product((1, 7, 131, 10**6), (RTX, H200), (0, 5)):
            assert _shape(shapes, units, rows, columns, groups) == (groups or rows, threads)


@pytest.mark.parametrize(
    ("columns", "tile", "threads"),
    [
        (4096, 8, 512),
        (2048, 8, 256),
        (1024, 8, 128),
        (1025, 8, 256),
        (64, 8, 32),
        (2048, 4, 512),
        (65536, 8, 512),
        (64, 2, 32),
        (4096, 16, 256),
        (16384, 16, 512),
    ],
)
def test_every_thread_of_a_row_in_tiles_has_one(shapes: ctypes.CDLL, columns: int, tile: int, threads: int) -> None:
    assert shapes.threads_for_tiles(CUDA, columns, tile) == threads


def test_asked_groups_are_given(shapes: ctypes.CDLL) -> None:
    assert _shape(shapes, H200, ELEMENTS, 10**6, groups=3)[0] == 3
    assert _shape(shapes, H200, 2**40, 128)[0] == 0x7FFFFFFF
    assert _shape(shapes, H200, 0, 128)[0] == 1


def test_sycl_on_the_cpu_has_groups_of_a_vector_for_rows(shapes: ctypes.CDLL) -> None:
    assert _shape(shapes, UNKNOWN, 10, 4096, runtime=SYCL_ON_HOST) == (10, 16)
    assert _shape(shapes, UNKNOWN, ELEMENTS, 4096, runtime=SYCL_ON_HOST) == (16, 256)


@pytest.mark.parametrize(
    ("rows", "columns", "groups"),
    [
        (0, 4096, 1),
        (1, 4096, 1),
        (100, 4096, 100),
        (132, 4096, 132),
        (1000, 4096, 132),
        (10**6, 4096, 264),
        (10**6, 8192, 132),
        (10**6, 65536, 132),
        (10**6, 2048, 528),
        (10**6, 8, 32 * 132),
        (1600, 8, 132),
        (16 * 400, 8, 400),
    ],
)
def test_groups_with_partials_fill_an_sm_with_1024_threads(
    shapes: ctypes.CDLL, rows: int, columns: int, groups: int
) -> None:
    assert shapes.with_partials(CUDA, H200, rows, columns) == groups


@pytest.mark.parametrize(
    ("runtime", "rows", "columns", "shape"),
    [
        pytest.param(CUDA, 264, 4096, (128, 256), id="a group for 32 columns, whose rows its threads share"),
        pytest.param(CUDA, 5, 4096, (128, 64), id="no thread without a row"),
        pytest.param(CUDA, 1, 33, (2, 32), id="a last group of one column"),
        pytest.param(XPU, 264, 4096, (128, 32), id="elsewhere a thread for a column"),
    ],
)
def test_columns_are_added_up_by_all_threads_of_a_group(
    shapes: ctypes.CDLL, runtime: int, rows: int, columns: int, shape: tuple[int, int]
) -> None:
    threads = ctypes.c_int32()
    assert shapes.shape_of_column_sums(runtime, H200, rows, columns, ctypes.byref(threads)) == shape[0]
    assert threads.value == shape[1]


@pytest.mark.parametrize(
    ("runtime", "units", "rows", "columns", "parts"),
    [
        pytest.param(CUDA, H200, 1, 10**9, 4 * H200, id="a few for each unit"),
        pytest.param(CUDA, H200, 100, 10**6, 6, id="in all"),
        pytest.param(CUDA, H200, 132, 10**6, 1, id="enough rows"),
        pytest.param(CUDA, H200, 1, 8191, 1, id="too short to cut"),
        pytest.param(CUDA, H200, 1, 8192, 2, id="just long enough"),
        pytest.param(CUDA, H200, 0, 10**6, 1, id="no row"),
        pytest.param(CPU, 8, 1, 10**6, 8, id="a thread each"),
        pytest.param(CPU, 8, 3, 10**6, 3, id="or half of one more"),
        pytest.param(CPU, 8, 1, 40_000, 2, id="worth waking a thread"),
        pytest.param(CPU, 1, 1, 10**9, 1, id="one thread"),
    ],
)
def test_few_long_rows_are_cut_for_all_units(
    shapes: ctypes.CDLL, runtime: int, units: int, rows: int, columns: int, parts: int
) -> None:
    assert shapes.parts_of_a_row(runtime, units, rows, columns) == parts


@pytest.mark.parametrize(
    ("positions", "heads", "columns", "taken"),
    [
        pytest.param(4096, 32, 128, 32, id="as many as a block takes in one step"),
        pytest.param(4096, 64, 128, 32, id="and no more"),
        pytest.param(4096, 5, 64, 5, id="all of few"),
        pytest.param(4096, 8, 8192, 1, id="one long one"),
        pytest.param(33, 32, 128, 8, id="fewer before idle units"),
        pytest.param(1, 32, 128, 1, id="one each when decoding"),
        pytest.param(0, 0, 0, 1, id="none"),
    ],
)
def test_heads_share_a_group_where_no_unit_is_idle(
    shapes: ctypes.CDLL, positions: int, heads: int, columns: int, taken: int
) -> None:
    assert shapes.heads_of_a_group(CUDA, H200, positions, heads, columns) == taken


@pytest.mark.parametrize("runtime", [CUDA, XPU])
def test_each_chunk_of_tensors_has_a_group_of_a_fixed_size(shapes: ctypes.CDLL, runtime: int) -> None:
    found = ctypes.c_int32()
    for elements, chunks in ((0, 3), (64, 1), (10**6, 245), (10**12, 4096)):
        assert shapes.shape_of_tensors(runtime, elements, chunks, ctypes.byref(found)) == chunks
        assert found.value == 256


@pytest.mark.parametrize(("elements", "chunks", "groups"), [(0, 3, 1), (64, 1, 1), (10_240, 160, 3), (10**6, 245, 245)])
def test_small_tensors_share_groups_with_sycl_on_the_cpu(
    shapes: ctypes.CDLL, elements: int, chunks: int, groups: int
) -> None:
    found = ctypes.c_int32()
    assert shapes.shape_of_tensors(SYCL_ON_HOST, elements, chunks, ctypes.byref(found)) == groups
    assert found.value == 16


def test_a_chunk_without_elements_is_work(shapes: ctypes.CDLL) -> None:
    """An empty tensor has a norm, which its chunk writes."""
    assert shapes.has_tensors(0, 1)
    assert not shapes.has_tensors(0, 0)


@pytest.mark.parametrize("units", [RTX, H100, H200, 1])
def test_partials_leave_no_unit_idle(shapes: ctypes.CDLL, units: int) -> None:
    for size in SIZES:
        assert min(size, units) <= shapes.with_partials(XPU, units, size, 4096) <= min(size, 2 * units)
