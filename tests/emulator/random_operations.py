"""CUDA's shuffles, votes, reductions and atomic operations as short Python functions.

Source: CUDA C++ Programming Guide, and for shuffles the PTX ISA.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_, xor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WARP = 32
WORD = 0xFFFFFFFF

SHUFFLES = ["__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync"]

# How a word becomes the shuffled type, how the result becomes a word again, and what of the word is left.
TYPES: list[tuple[str, str, Callable[[int], int]]] = [
    ("(unsigned)(%s)", "", lambda v: v),
    ("(int)(%s)", "(unsigned)", lambda v: v),
    ("(long long)(%s)", "(unsigned)", lambda v: v),
    ("(unsigned long long)(%s)", "(unsigned)", lambda v: v),
    ("(double)(%s)", "(unsigned)", lambda v: v),
    ("(float)(0xffffu & (%s))", "(unsigned)", lambda v: v & 0xFFFF),
    ("(short)(0x7fffu & (%s))", "(unsigned)", lambda v: v & 0x7FFF),
]


def bits_of(value: object) -> int:
    """Returns what a thread gave, which is a number."""
    assert isinstance(value, int)
    return value


def shuffle_source(name: str, lane: int, distance: int, width: int) -> int:
    """Returns the lane that a shuffle reads (PTX ISA, shfl.sync)."""
    first, last = lane & ~(width - 1), lane | (width - 1)
    if name == "__shfl_sync":
        return first | distance & (width - 1)
    if name == "__shfl_up_sync":
        return lane - distance if lane - distance >= first else lane
    other = lane + distance if name == "__shfl_down_sync" else lane ^ distance
    return other if other <= last else lane


def _lanes(given: dict[int, int], has: Callable[[int], bool]) -> int:
    return sum(1 << lane for lane, value in given.items() if has(value))


VOTES: dict[str, Callable[[dict[int, int], int], int]] = {
    "__ballot_sync": lambda given, _: _lanes(given, bool),
    "__any_sync": lambda given, _: int(any(given.values())),
    "__all_sync": lambda given, _: int(all(given.values())),
    "__match_any_sync": lambda given, own: _lanes(given, lambda value: value == own),
}

REDUCTIONS: dict[str, Callable[[list[int]], int]] = {
    "__reduce_add_sync": sum,
    "__reduce_min_sync": min,
    "__reduce_max_sync": max,
    "__reduce_and_sync": lambda values: reduce(and_, values),
    "__reduce_or_sync": lambda values: reduce(or_, values),
    "__reduce_xor_sync": lambda values: reduce(xor, values),
}

ATOMICS: dict[str, Callable[[int, int], int]] = {
    "atomicAdd": lambda old, value: old + value & WORD,
    "atomicSub": lambda old, value: old - value & WORD,
    "atomicMin": min,
    "atomicMax": max,
    "atomicAnd": and_,
    "atomicOr": or_,
    "atomicXor": xor,
}
