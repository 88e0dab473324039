"""The functions of the op ``quantization``."""

from __future__ import annotations

import torch

from .registration import ops_of, register

__all__ = ["Quantization"]

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


class Quantization:
    """Groupwise quantization to integers of 8 or 4 bits, and to 8-bit floats.

    A group is a run of adjacent elements of the contiguous tensor; all groups are of one size.

    Args:
        namespace: of the torch ops to call.
    """

    def __init__(self, namespace: str) -> None:
        ops = ops_of(namespace)
        register(f"{namespace}::quantize", _quantize_fake, None)
        register(f"{namespace}::dequantize", _dequantize_fake, None)
        register(f"{namespace}::quantize_float8", _quantize_float8_fake, None)
        register(f"{namespace}::dequantize_float8", _dequantize_float8_fake, None)
        self._quantize = ops.quantize.default
        self._dequantize = ops.dequantize.default
        self._quantize_float8 = ops.quantize_float8.default
        self._dequantize_float8 = ops.dequantize_float8.default

    def quantize(
        self, x: torch.Tensor, groups: int, bits: int = 8, *, symmetric: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Quantize to integers.

        Args:
            x: float32, bfloat16 or float16.
            groups: how many groups there are.
            bits: 8, or 4, where two elements share a byte: the even one its high nibble.
            symmetric: a scale for each group; otherwise a scale and an offset, the middle of its range.

        Returns:
            int8 of x's shape, the last dimension halved for 4 bits; and float32 ``(groups, 1)``, the scales, or
            ``(groups, 2)``, scales and offsets: ``x = q * scale + offset``. A group with a NaN or an infinity becomes NaN.

        Raises:
            RuntimeError: naming the argument that does not fit.

        Source: deepspeed 0.19.8, csrc/quantization; tests/ops/quantization_reference.py
        """
        q, params = self._quantize(x, groups, bits, symmetric)
        return q, params

    def dequantize(
        self, q: torch.Tensor, params: torch.Tensor, bits: int = 8, *, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Undo :meth:`quantize`.

        Args:
            q: the integers.
            params: the scales, or scales and offsets.
            bits: of an element.
            dtype: of the result.

        Source: tests/ops/quantization_reference.py
        """
        x: torch.Tensor = self._dequantize(q, params, params.shape[0], bits, params.shape[1] == 1, dtype)
        return x

    def quantize_float8(
        self, x: torch.Tensor, groups: int, dtype: torch.dtype = torch.float8_e4m3fn
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Quantize to 8-bit floats, scaled so that each group's largest magnitude is the format's.

        Args:
            x: float32, bfloat16 or float16.
            groups: how many groups there are.
            dtype: ``torch.float8_e4m3fn`` or ``torch.float8_e5m2``.

        Returns:
            A tensor of x's shape and the dtype, and float32 ``(groups,)``, the scales: ``x = q * scale``.

        Raises:
            ValueError: for another dtype.

        Source: Micikevicius et al., arXiv:2209.05433; tests/ops/quantization_reference.py
        """
        if dtype not in _FLOAT8:
            msg = f"quantize_float8 failed: got dtype {dtype}; expected one of {_FLOAT8}. Fix: choose one of them."
            raise ValueError(msg)
        q, scales = self._quantize_float8(x, groups, dtype == torch.float8_e5m2)
        return q, scales

    def dequantize_float8(
        self, q: torch.Tensor, scales: torch.Tensor, *, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Undo :meth:`quantize_float8`.

        Args:
            q: the 8-bit floats.
            scales: ``(groups,)``.
            dtype: of the result.
        """
        x: torch.Tensor = self._dequantize_float8(q, scales, dtype)
        return x


def _resized(tensor: torch.Tensor, numerator: int, denominator: int, dtype: torch.dtype) -> torch.Tensor:
    shape = [*tensor.shape]
    if shape:
        shape[-1] = shape[-1] * numerator // denominator
    return tensor.new_empty(shape, dtype=dtype)


def _quantize_fake(x: torch.Tensor, groups: int, bits: int, symmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return _resized(x, bits, 8, torch.int8), x.new_empty((groups, 1 if symmetric else 2), dtype=torch.float32)


def _dequantize_fake(
    q: torch.Tensor, params: torch.Tensor, groups: int, bits: int, symmetric: bool, dtype: torch.dtype
) -> torch.Tensor:
    return _resized(q, 8, bits, dtype)


def _quantize_float8_fake(x: torch.Tensor, groups: int, e5m2: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return _resized(x, 1, 1, _FLOAT8[e5m2]), x.new_empty((groups,), dtype=torch.float32)


def _dequantize_float8_fake(q: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return _resized(q, 1, 1, dtype)
