"""Memory between guard pages, with tensors directly next to one of them.

Under AddressSanitizer, the rest of an arena is poisoned while an op runs, so that both sides of a tensor are checked.
"""

from __future__ import annotations

import ctypes
import mmap
import random
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ARENA_BYTES", "Arena", "Place"]

ARENA_BYTES = 1 << 15
_PAGE = mmap.PAGESIZE
_PROT_NONE, _PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS = 0, 3, 0x22

_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_poison: Any = getattr(_libc, "__asan_poison_memory_region", None)
_unpoison: Any = getattr(_libc, "__asan_unpoison_memory_region", None)
for _function in (_poison, _unpoison):
    if _function is not None:
        _function.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        _function.restype = None
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Place:
    """The location of a tensor in an arena: a byte offset, and strides in elements."""

    def __init__(self, byte: int, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> None:
        self.byte, self.shape, self.strides, self.dtype = byte, tuple(shape), tuple(strides), dtype
        self.elements = reach(shape, strides)
        self.end = byte + self.elements * dtype.itemsize

    def overlaps_itself(self) -> bool:
        """Return whether elements may share memory: whether a dimension's stride is within the extent of smaller ones."""
        below = 0
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size > 1 and stride <= below:
                return True
            below += stride * (size - 1)
        return False

    def on(self, buffer: Any) -> torch.Tensor:
        """Return the tensor on a buffer with the arena's size."""
        if self.elements == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        return self.flat(buffer).as_strided(self.shape, self.strides)

    def of_bits(self) -> Place:
        """Return the same place for numbers whose copies have the same bits: a copy of a float8 NaN may be another NaN."""
        return Place(self.byte, self.shape, self.strides, _BITS.get(self.dtype.itemsize, self.dtype))

    def flat(self, buffer: Any) -> torch.Tensor:
        """Return all elements from the first to the last, including those between the tensor's own."""
        return torch.frombuffer(buffer, dtype=self.dtype, count=self.elements, offset=self.byte)


def reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements from the first to the last, inclusive."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


class Arena:
    """One memory region; created once and used for one tensor (or several that share memory) per call."""

    def __init__(self, seed: int) -> None:
        total = ARENA_BYTES + 2 * _PAGE
        base = _libc.mmap(None, total, _PROT_NONE, _MAP_PRIVATE_ANONYMOUS, -1, 0)
        if base in (None, ctypes.c_void_p(-1).value):
            raise MemoryError("mmap of an arena failed")
        self.address = base + _PAGE
        if _libc.mprotect(self.address, ARENA_BYTES, _PROT_READ_WRITE) != 0:
            raise MemoryError("mprotect of an arena failed")
        self.buffer = (ctypes.c_char * ARENA_BYTES).from_address(self.address)
        self._pattern = random.Random(seed).randbytes(ARENA_BYTES)  # noqa: S311
        self._before = ctypes.create_string_buffer(ARENA_BYTES)
        self._before_address = ctypes.addressof(self._before)
        self.places: list[Place] = []
        ctypes.memmove(self.address, self._pattern, ARENA_BYTES)

    def add(self, place: Place) -> torch.Tensor:
        """Place a tensor in the arena."""
        self.places.append(place)
        return place.on(self.buffer)

    def guard(self) -> None:
        """Save the content, and poison the bytes outside tensors."""
        ctypes.memmove(self._before_address, self.address, ARENA_BYTES)
        if _poison is not None:
            begin, end = self._span()
            _poison(self.address, begin)
            _poison(self.address + end, ARENA_BYTES - end)

    def release(self) -> None:
        if _unpoison is not None:
            _unpoison(self.address, ARENA_BYTES)

    def is_unchanged(self, written: Sequence[Place]) -> bool:
        """Return whether every byte outside these places is unchanged."""
        if _libc.memcmp(self.address, self._before_address, ARENA_BYTES) == 0:
            return True
        for place in written:
            if place.elements and not place.overlaps_itself():
                bits = place.of_bits()
                bits.on(self._before).copy_(bits.on(self.buffer))
        return bool(_libc.memcmp(self.address, self._before_address, ARENA_BYTES) == 0)

    def reset(self) -> None:
        """Remove the tensors, for the next call."""
        ctypes.memmove(self.address, self._pattern, ARENA_BYTES)
        self.places.clear()

    def _span(self) -> tuple[int, int]:
        held = [place for place in self.places if place.elements]
        if not held:
            return ARENA_BYTES, ARENA_BYTES
        return min(place.byte for place in held), max(place.end for place in held)
