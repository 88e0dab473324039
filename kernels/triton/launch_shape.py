"""The number of threads per row: a function of the row's length only, which can be tested without Triton."""

from __future__ import annotations

__all__ = ["launch_shape"]

_LEAST_WARPS, _MOST_WARPS = 4, 32
_ELEMENTS_OF_A_WARP = 256  # 8 per thread: from 16 on, the backward of a norm spills registers on sm_90


def launch_shape(columns: int) -> dict[str, int]:
    """Return ``BLOCK``, the smallest power of 2 that holds a row, and ``num_warps``.

    Args:
        columns: the number of elements of a row.
    """
    block = 1 << max(0, columns - 1).bit_length()
    warps = min(_MOST_WARPS, max(_LEAST_WARPS, block // _ELEMENTS_OF_A_WARP))
    return {"BLOCK": block, "num_warps": warps}
