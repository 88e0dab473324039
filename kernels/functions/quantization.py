"""The functions of the op ``quantization``."""

from __future__ import annotations

from typing import ClassVar

import torch

from .registration import OpFunctions

__all__ = ["QuantizationFunctions"]

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


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


class QuantizationFunctions(OpFunctions):
    """Groupwise quantization to integers of 8 or 4 bits, and to 8-bit floats.

    A group is a run of adjacent elements of the contiguous tensor; all groups have the same size.

    """

    OPS: ClassVar = {
        "quantize": (_quantize_fake,),
        "dequantize": (_dequantize_fake,),
        "quantize_float8": (_quantize_float8_fake,),
        "dequantize_float8": (_dequantize_float8_fake,),
    }

    def quantize(
        self, x: torch.Tensor, groups: int, bits: int = 8, *, symmetric: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`anyaccel.ops.quantize`."""
        q, params = self._quantize(x, groups, bits, symmetric)
        return q, params

    def dequantize(
        self, q: torch.Tensor, params: torch.Tensor, bits: int = 8, *, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """See :func:`anyaccel.ops.dequantize`."""
        if params.dim() != 2:
            msg = (
                f"dequantize failed: got params of {params.dim()} dimensions; expected (groups, 1) or (groups, 2). "
                f"Fix: pass the params that quantize returned."
            )
            raise RuntimeError(msg)
        x: torch.Tensor = self._dequantize(q, params, params.shape[0], bits, params.shape[1] == 1, dtype)
        return x

    def quantize_float8(
        self, x: torch.Tensor, groups: int, dtype: torch.dtype = torch.float8_e4m3fn
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`anyaccel.ops.quantize_float8`."""
        if dtype not in _FLOAT8:
            msg = f"quantize_float8 failed: got dtype {dtype}; expected one of {_FLOAT8}. Fix: pass dtype={_FLOAT8[0]}."
            raise ValueError(msg)
        q, scales = self._quantize_float8(x, groups, dtype == torch.float8_e5m2)
        return q, scales

    def dequantize_float8(
        self, q: torch.Tensor, scales: torch.Tensor, *, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """See :func:`anyaccel.ops.dequantize_float8`."""
        x: torch.Tensor = self._dequantize_float8(q, scales, dtype)
        return x
