"""Groupwise quantization to integers of 8 or 4 bits, and to 8-bit floats. A group is a run of adjacent elements."""

from __future__ import annotations

import torch

from .loading import loaded

__all__ = ["dequantize", "dequantize_float8", "quantize", "quantize_float8"]


def quantize(
    x: torch.Tensor, groups: int, bits: int = 8, *, symmetric: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize groups of adjacent elements to integers: ``q = round((x - offset) / scale)``, so that ``x ~ q * scale + offset``.

    With ``n = 2 ** bits``, a symmetric group has ``scale = 2 * max(abs(x)) / n`` and ``offset = 0``, an asymmetric one
    ``scale = (max(x) - min(x)) / n`` and ``offset = (max(x) + min(x)) / 2``; where that scale would be 0 it is 1, and it is never
    below the smallest normal float32. Ties are rounded to even, and codes are clamped to ``-n / 2 .. n / 2 - 1``. A group that
    contains a NaN or an infinity dequantizes to NaN; other groups are not affected. There is no gradient: backward through the
    result gives ``x`` none, and torch warns.

    Args:
        x: any shape and strides, cut into groups in row-major order; float32, bfloat16 or float16, not float64.
        groups: how many groups there are (not their size); must divide ``x.numel()``.
        bits: 8 or 4. With 4 two elements share a byte, the even one in its high four bits; the last dimension and the size of a
            group must then be even.
        symmetric: use a scale for each group; otherwise a scale and an offset.

    Returns:
        The pair ``(q, params)``. ``q``: int8, contiguous, of x's shape, with half the last dimension for 4 bits. ``params``:
        float32, ``(groups, 1)`` with the scales, or, if not symmetric, ``(groups, 2)`` with scales and offsets.

    Raises:
        RuntimeError: if ``bits`` is neither 8 nor 4, ``groups`` does not divide x, or x's shape or dtype does not fit.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: deepspeed 0.19.8, csrc/quantization; tests/ops/quantization_reference.py

    Example:
        >>> q, params = quantize(torch.tensor([-2.0, 1.0, 0.0, 8.0]), groups=2)
        >>> q, params.flatten()
        (tensor([-128,   64,    0,  127], dtype=torch.int8), tensor([0.0156, 0.0625]))
    """
    q, params = loaded("QuantizationLoader").quantize(x, groups, bits, symmetric=symmetric)
    return q, params


def dequantize(
    q: torch.Tensor, params: torch.Tensor, bits: int = 8, *, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Restore what :func:`quantize` quantized: ``q * scale + offset``.

    The number of groups and whether they have offsets follow from the shape of ``params``. There is no gradient: backward
    through the result gives the arguments none, and torch warns.

    Args:
        q: int8, any strides, as :func:`quantize` returned it.
        params: float32, ``(groups, 1)`` or ``(groups, 2)``, on q's device.
        bits: 8 or 4, the same as for :func:`quantize`. It is not stored: a wrong one gives wrong values and no error.
        dtype: of the result; ``torch.float32``, ``torch.bfloat16`` or ``torch.float16``.

    Returns:
        A contiguous tensor of q's shape, with twice the last dimension for 4 bits, and of the dtype.

    Raises:
        RuntimeError: if ``bits`` is neither 8 nor 4, a dtype, shape or device does not fit, or the groups do not divide q.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: tests/ops/quantization_reference.py

    Example:
        >>> q, params = quantize(torch.tensor([-2.0, 1.0, 0.0, 8.0]), groups=2, bits=4)
        >>> q, dequantize(q, params, bits=4)
        (tensor([-124,    7], dtype=torch.int8), tensor([-2.,  1.,  0.,  7.]))
    """
    x: torch.Tensor = loaded("QuantizationLoader").dequantize(q, params, bits, dtype=dtype)
    return x


def quantize_float8(
    x: torch.Tensor, groups: int, dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize groups of adjacent elements to 8-bit floats: ``q = float8(x / scale)``, with ``scale = max(abs(x)) / largest``.

    ``largest`` is the largest number of the format, 448 (e4m3fn) or 57344 (e5m2); the scale of a group of zeros is 1. Ties are
    rounded to even. A NaN stays a NaN and leaves its group as it is; a group with an infinity dequantizes to NaN. There is no
    gradient: backward through the result gives ``x`` none, and torch warns.

    Args:
        x: any shape and strides, cut into groups in row-major order; float32, bfloat16 or float16, not float64.
        groups: how many groups there are (not their size); must divide ``x.numel()``.
        dtype: ``torch.float8_e4m3fn`` (3 bits of mantissa) or ``torch.float8_e5m2`` (2 bits, a wider range).

    Returns:
        The pair ``(q, scales)``. ``q``: contiguous, of x's shape and the dtype. ``scales``: float32, ``(groups,)``.

    Raises:
        ValueError: if ``dtype`` is another one.
        RuntimeError: if ``groups`` does not divide x, or x's dtype does not fit.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Micikevicius et al., arXiv:2209.05433; tests/ops/quantization_reference.py

    Example:
        >>> q, scales = quantize_float8(torch.tensor([896.0, -2.0]), groups=1)
        >>> q.float(), scales
        (tensor([448.,  -1.]), tensor([2.]))
    """
    q, scales = loaded("QuantizationLoader").quantize_float8(x, groups, dtype)
    return q, scales


def dequantize_float8(q: torch.Tensor, scales: torch.Tensor, *, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Restore what :func:`quantize_float8` quantized: ``q * scale``.

    There is no gradient: backward through the result gives the arguments none, and torch warns.

    Args:
        q: ``torch.float8_e4m3fn`` or ``torch.float8_e5m2``, any strides, as :func:`quantize_float8` returned it.
        scales: float32, ``(groups,)``, on q's device.
        dtype: of the result; ``torch.float32``, ``torch.bfloat16`` or ``torch.float16``.

    Returns:
        A contiguous tensor of q's shape and the dtype.

    Raises:
        RuntimeError: if a dtype, shape or device does not fit, or the groups do not divide q.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Micikevicius et al., arXiv:2209.05433; tests/ops/quantization_reference.py

    Example:
        >>> dequantize_float8(*quantize_float8(torch.tensor([896.0, -2.0]), groups=1))
        tensor([896.,  -2.])
    """
    x: torch.Tensor = loaded("QuantizationLoader").dequantize_float8(q, scales, dtype=dtype)
    return x
