"""The occupancy model, against values calculated by hand from the limits that NVIDIA documents."""

from __future__ import annotations

import pytest

from .occupancy import LIMITS, NEEDED_BYTES, littles_law_bytes, threads_of_an_sm


@pytest.mark.parametrize(
    ("target", "threads", "registers", "shared_bytes", "resident"),
    [
        pytest.param("sm_90", 256, 32, 0, 2048, id="full: 64 warps of 1024 registers are all 65536"),
        pytest.param("sm_90", 256, 33, 0, 1536, id="33 registers are given as 40: 51 warps, of which 48 make 6 blocks"),
        pytest.param("sm_90", 512, 40, 0, 1536, id="48 warps make 3 blocks of 16"),
        pytest.param("sm_90", 512, 128, 0, 512, id="the most registers that blocks of 512 allow"),
        pytest.param("sm_90", 1024, 128, 0, 0, id="16 warps of registers hold no block of 32"),
        pytest.param("sm_90", 256, 255, 0, 256, id="8 warps make one block"),
        pytest.param("sm_90", 32, 16, 0, 1024, id="32 blocks of one warp"),
        pytest.param("sm_90", 256, 32, 48 * 1024, 1024, id="four blocks of 48 KiB and 1 KiB each in 228 KiB"),
        pytest.param("sm_80", 256, 32, 48 * 1024, 768, id="three of them in 164 KiB"),
        pytest.param("sm_120", 256, 32, 0, 1536, id="48 warps"),
        pytest.param("sm_120", 32, 32, 0, 768, id="24 blocks of one warp"),
    ],
)
def test_the_scarcest_of_warps_blocks_registers_and_shared_memory_decides(
    target: str, threads: int, registers: int, shared_bytes: int, resident: int
) -> None:
    assert threads_of_an_sm(LIMITS[target], threads, registers, shared_bytes) == resident


def test_the_bytes_that_are_needed_are_littles_law_rounded_up() -> None:
    assert littles_law_bytes() <= NEEDED_BYTES < littles_law_bytes() + 1024
