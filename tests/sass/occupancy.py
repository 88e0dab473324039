"""The number of a kernel's threads that an SM holds, and the bytes that must be in flight to keep memory busy.

Sources of the limits: "CUDA C++ Programming Guide", table "Technical Specifications per Compute Capability" (resident warps,
blocks and registers, shared memory), and NVIDIA's occupancy calculator for the units in which registers are allocated.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMITS", "NEEDED_BYTES", "Limits", "littles_law_bytes", "threads_of_an_sm"]

_WARP = 32
_REGISTER_UNIT = 256  # registers are allocated per warp in units of 256
_WARP_UNIT = 4  # warps of a block are counted in fours, one for each of an SM's four partitions
_SHARED_UNIT = 128


@dataclass(frozen=True)
class Limits:
    """The resources of an SM.

    Attributes:
        warps: the number of resident warps.
        blocks: the number of resident blocks.
        registers: the number of 32-bit registers.
        shared_bytes: the shared memory for all blocks.
        reserved_bytes: the part of it that each block reserves for the system.
    """

    warps: int
    blocks: int
    registers: int
    shared_bytes: int
    reserved_bytes: int = 1024


LIMITS = {
    "sm_80": Limits(64, 32, 65536, 164 * 1024),
    "sm_90": Limits(64, 32, 65536, 228 * 1024),
    "sm_100": Limits(64, 32, 65536, 228 * 1024),
    "sm_120": Limits(48, 24, 65536, 100 * 1024),
}

_LATENCY_SECONDS = 650e-9
_BYTES_PER_SECOND = 4.3e12
_SMS = 132
NEEDED_BYTES = 21 * 1024
"""Bytes in flight per SM for the copy bandwidth of an H200, by Little's law: 650 ns of latency times 4.3 TB/s, the copy
bandwidth measured on one, over its 132 SMs is 21.2 kB. The bandwidth also counts writes, and only loads are compared
with it here, so the figure is on the safe side."""


def littles_law_bytes() -> float:
    """Return the product that ``NEEDED_BYTES`` rounds up."""
    return _LATENCY_SECONDS * _BYTES_PER_SECOND / _SMS


def threads_of_an_sm(limits: Limits, threads: int, registers: int, shared_bytes: int) -> int:
    """Return the number of a kernel's threads that are resident on an otherwise idle SM.

    Args:
        limits: the SM's limits.
        threads: the threads of a block.
        registers: the registers of a thread.
        shared_bytes: the shared memory of a block.
    """
    warps = _rounded_up(threads, _WARP) // _WARP
    of_warp = _rounded_up(max(registers, 1) * _WARP, _REGISTER_UNIT)
    resident_warps = limits.registers // of_warp // _WARP_UNIT * _WARP_UNIT
    shared = _rounded_up(shared_bytes, _SHARED_UNIT) + limits.reserved_bytes
    blocks = min(limits.blocks, limits.warps // warps, resident_warps // warps, limits.shared_bytes // shared)
    return blocks * threads


def _rounded_up(value: int, unit: int) -> int:
    return (value + unit - 1) // unit * unit
