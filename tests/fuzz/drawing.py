"""Generates the arguments of a call from a spec and a seed, in arenas."""

from __future__ import annotations

import math
import random
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

from .arenas import ARENA_BYTES, Arena, Place, reach
from .specs import DTYPES, Argument, Spec

__all__ = ["Drawing", "Laid"]


@dataclass
class Laid:
    """A tensor in an arena; None for tensors that torch must create elsewhere, such as sparse ones."""

    tensor: torch.Tensor
    argument: Argument
    arena: Arena | None = None
    place: Place | None = None


@dataclass
class Drawing:
    """The arguments of one call.

    Attributes:
        pool: arenas, used again by every call.
        dims: the number for each symbol.
        is_exact: every float is finite and of ordinary size, so that results can be compared.
        is_tame: in addition, no option makes the result sensitive to rounding, as an epsilon of 0 does.
        is_ordinary: every tensor has its values in plain memory on the CPU.
        shares_memory: an argument shares the memory of another.
    """

    pool: list[Arena]
    arguments: dict[str, Any] = field(default_factory=dict)
    laid: list[Laid] = field(default_factory=list)
    dims: dict[str, int] = field(default_factory=dict)
    used: int = 0
    is_exact: bool = True
    is_tame: bool = True
    is_ordinary: bool = True
    shares_memory: bool = False

    def draw(self, spec: Spec, arguments: list[Argument], seed: int) -> None:
        """Fill ``arguments``; the same spec and seed give the same arguments."""
        self._rng = rng = random.Random(seed)  # noqa: S311
        self._generator = torch.Generator().manual_seed(seed)
        self.dims = {}
        self._most = rng.choice([3, 9, 9, 40, 300, 3000])
        self.dims["n"] = rng.choice([0, 1, 1, 1, 2, 2, 3])
        self.is_exact = self.is_tame = rng.random() < 0.85
        self._hostile = rng.randrange(max(1, len(arguments))) if rng.random() < 0.25 else -1
        for number, argument in enumerate(arguments):
            self._is_hostile = number == self._hostile
            self.arguments[argument.name] = self._value(spec[argument.name], argument)

    def arenas(self) -> list[Arena]:
        return self.pool[: self.used]

    def _value(self, value: Any, argument: Argument) -> Any:
        if value is None:
            return None
        match argument.kind:
            case "tensor":
                return self._tensor(value, argument, "")
            case "tensors":
                odd = self._rng.randrange(8)
                return [
                    self._tensor(value["odd"] if value["odd"] and i == odd else value["item"], argument, str(i))
                    for i in range(min(8, self._size(value["count"], "")))
                ]
            case "int":
                return self._size(value, "")
            case "ints":
                return [self._size(value["value"], "") for _ in range(min(8, self._size(value["count"], "")))]
            case "float":
                self.is_exact = self.is_exact and math.isfinite(value) and abs(value) < 1e6
                self.is_tame = self.is_tame and self.is_exact and 1e-3 <= value <= 2
                return value
            case "dtype":
                return DTYPES[value]
        return value

    def _size(self, written: str, index: str) -> int:
        size = 1
        for factor in written.split("*"):
            if factor.lstrip("-").isdigit():
                size *= int(factor)
                continue
            name = factor if factor == "n" else factor + index
            if name not in self.dims:
                small = self._rng.choices([0, 1, 2, 3, 4, 5, 7, 8], [1, 3, 6, 6, 6, 4, 4, 2])[0]
                self.dims[name] = small if self._rng.random() < 0.85 else self._rng.randrange(self._most)
            size *= self.dims[name]
        return size

    def _tensor(self, spec: Spec, argument: Argument, index: str) -> torch.Tensor:
        shape = [min(self._size(size, index), ARENA_BYTES) for size in spec["shape"]]  # beside a 0 any size would fit
        shape = [min(size, 64) if 0 in shape else size for size in shape]
        dtype = DTYPES[spec["dtype"]]
        for most in (4, 1):
            for at in range(len(shape)):
                if math.prod(shape) > ARENA_BYTES // 2 // dtype.itemsize:
                    shape[at] = min(shape[at], most)
        if spec["special"] or (self._is_hostile and self._rng.random() < 0.1):
            return self._special(spec["special"] or self._rng.choice(_SPECIAL_NAMES), shape, spec, argument, index)
        place, arena = self._place(shape, dtype, argument)
        tensor = arena.add(place)
        if place.elements:
            self._fill(place.flat(arena.buffer), spec, index)
        self.laid.append(Laid(tensor, argument, arena, place))
        return tensor

    def _place(self, shape: list[int], dtype: torch.dtype, argument: Argument) -> tuple[Place, Arena]:
        strides = self._strides(shape, argument)
        if reach(shape, strides) * dtype.itemsize > ARENA_BYTES - 64:
            strides = _contiguous(shape)
        bytes_ = reach(shape, strides) * dtype.itemsize
        rng = self._rng
        arena = self._arena()
        byte = rng.choice([0, ARENA_BYTES - bytes_, ARENA_BYTES - bytes_, rng.randrange(ARENA_BYTES - bytes_ + 1)])
        byte -= byte % dtype.itemsize
        if self._is_hostile and self.laid and argument.is_written is not None and rng.random() < 0.3:
            other = rng.choice(self.laid)
            if other.arena is not None and other.place is not None:
                shift = rng.choice([0, 0, 1, 2, -1, 4]) * dtype.itemsize
                byte, arena = other.place.byte + shift, other.arena
                self.shares_memory = True
                if rng.random() < 0.3 and (other.place.shape, other.place.dtype) == (tuple(shape), dtype):
                    byte, strides = other.place.byte, list(other.place.strides)
        elif self._is_hostile and rng.random() < 0.1:
            byte += rng.choice([1, dtype.itemsize // 2])
        if byte < 0 or byte + reach(shape, strides) * dtype.itemsize > ARENA_BYTES:
            arena = self._arena()
            byte, strides = 0, _contiguous(shape)
        if dtype.is_complex:
            byte -= byte % dtype.itemsize  # torch's own copy of a misaligned tensor crashes
        self.is_ordinary = self.is_ordinary and byte % dtype.itemsize == 0
        return Place(byte, shape, strides, dtype), arena

    def _arena(self) -> Arena:
        if self.used == len(self.pool):
            self.pool.append(Arena(self.used))
        self.used += 1
        return self.pool[self.used - 1]

    def _strides(self, shape: list[int], argument: Argument) -> list[int]:
        rng = self._rng
        strides = _contiguous(shape)
        kinds = ["contiguous"] * 4 + ["transposed", "stepped", "padded"]
        if argument.is_written is False or self._is_hostile:
            kinds += ["expanded", "expanded", "window"]
        elif argument.is_written is None and rng.random() < 0.1:
            kinds += ["expanded"]
        kind = rng.choice(kinds)
        rank = range(len(shape))
        if kind == "transposed":
            order = rng.sample(rank, len(shape))
            permuted = _contiguous([shape[at] for at in order])
            for at, stride in zip(order, permuted, strict=True):
                strides[at] = stride
        elif kind == "stepped":
            factor = rng.choice([2, 3])
            strides = [stride * factor for stride in strides]
        elif kind == "padded":
            strides = _contiguous([size + rng.choice([0, 0, 1, size]) for size in shape])
        elif kind == "expanded":
            for at in rank:
                strides[at] = rng.choice([0, strides[at]])
        elif kind == "window":
            strides = [rng.choice([1, 1, 2, stride]) for stride in strides]
        return strides

    def _fill(self, tensor: torch.Tensor, spec: Spec, index: str) -> None:
        dtype = tensor.dtype
        if dtype == torch.bool:
            values: Any = torch.rand(tensor.shape, generator=self._generator) < 0.4
        elif dtype.is_floating_point or dtype.is_complex:
            values = torch.randn(tensor.shape, generator=self._generator).clamp_(-4, 4)
            if not self.is_exact:
                values = values * self._rng.choice([1.0, 1e30, 1e-40, torch.inf, torch.nan])
        else:
            below = max(1, min(self._size(spec["below"], index), torch.iinfo(dtype).max))
            values = torch.randint(below, tensor.shape, generator=self._generator)
            if self._is_hostile and self._rng.random() < 0.5 and tensor.numel():
                wrong = self._rng.choice([-1, below, below + 1, -below, 2**31, 2**62, -(2**63), -2])
                values.view(-1)[self._rng.randrange(values.numel())] = wrong
        tensor.copy_(values)

    def _special(self, kind: str, shape: list[int], spec: Spec, argument: Argument, index: str) -> torch.Tensor:
        """Return a tensor whose elements are not simply at its address with its strides."""
        self.is_ordinary = kind in ("neg", "conj", "requires_grad") and self.is_ordinary
        dtype = DTYPES[spec["dtype"]]
        dense = torch.empty(shape, dtype=dtype)
        if dense.numel():
            self._fill(dense, spec, index)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tensor = _SPECIALS[kind](dense)
            except Exception:  # torch does not support this shape or dtype
                tensor = dense
        self.laid.append(Laid(tensor, argument))
        return tensor


def _contiguous(shape: list[int]) -> list[int]:
    strides = [1] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * max(1, shape[at + 1])
    return strides


_SPECIALS: dict[str, Any] = {
    "sparse": lambda dense: dense.to_sparse(),
    "csr": lambda dense: dense.to_sparse_csr(),
    "meta": lambda dense: dense.to("meta"),
    "zero": lambda dense: torch._efficientzerotensor(dense.shape, dtype=dense.dtype),
    "neg": lambda dense: torch._neg_view(dense.float() if dense.dtype.itemsize == 1 else dense),
    "conj": lambda dense: torch.complex(dense, dense).conj(),
    "quantized": lambda dense: torch.quantize_per_tensor(dense, 0.1, 0, torch.quint8),
    "mkldnn": lambda dense: dense.to_mkldnn(),
    "nested": lambda dense: torch.nested.nested_tensor([dense, dense]),
    "requires_grad": lambda dense: dense.requires_grad_(),
}
_SPECIAL_NAMES = list(_SPECIALS)
