"""Checks of tensors before torch operators that would crash the process on an unsupported layout."""

from __future__ import annotations

import math

import torch

__all__ = ["lie_below", "require_floats", "require_integers", "require_lengths", "require_like"]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_INTEGERS = (torch.int32, torch.int64)


def lie_below(numbers: torch.Tensor, end: int) -> bool:
    """Return whether all numbers are in [0, end); waits for the device."""
    if numbers.numel() == 0:
        return True
    least, most = torch.aminmax(numbers)
    return int(least) >= 0 and int(most) < end


def require_floats(function: str, dims: tuple[int, ...], *, codes: bool = False, **tensors: torch.Tensor) -> None:
    """Check that tensors are strided and hold floats.

    Args:
        function: the function that was called, for the message.
        dims: the allowed numbers of dimensions.
        codes: allow uint8, which holds 8-bit floats.
        tensors: the tensors, by argument name.

    Raises:
        ValueError: naming the first tensor that fails.
    """
    allowed = (*_FLOATS, torch.uint8) if codes else _FLOATS
    _require(function, dims, allowed, "float32, float16, bfloat16 or float64", tensors)


def require_integers(function: str, dims: tuple[int, ...], **tensors: torch.Tensor) -> None:
    """Check that tensors are strided and hold int32 or int64; see :func:`require_floats`."""
    _require(function, dims, _INTEGERS, "int32 or int64", tensors)


def require_lengths(function: str, lengths: torch.Tensor, least: int, most: int) -> None:
    """Check that sequence lengths lie in a range; waits for the device.

    Raises:
        ValueError: when a length is outside the range.
    """
    if lengths.numel() == 0:
        return
    shortest, longest = (int(end) for end in torch.aminmax(lengths))
    if shortest < least or longest > most:
        msg = (
            f"{function} failed: got sequences of {shortest} to {longest} tokens; the tables and caches hold "
            f"{least} to {most}. Fix: pass lengths in this range, or tables with more blocks."
        )
        raise ValueError(msg)


def _require(
    function: str, dims: tuple[int, ...], dtypes: tuple[torch.dtype, ...], wanted: str, tensors: dict[str, torch.Tensor]
) -> None:
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.dtype not in dtypes or tensor.dim() not in dims:
            shown = " or ".join(map(str, dims))
            if tensor.layout is not torch.strided:
                fix = f"pass {name}.to_dense()"
            elif tensor.dtype not in dtypes:
                fix = f"pass {name}.to({dtypes[0]})"
            else:
                fix = f"pass {name} with {shown} dimensions, using {name}.reshape(...)"
            msg = (
                f"{function} failed: got {name}, {tensor.dtype} of {tensor.dim()} dimensions, {tensor.layout}; expected "
                f"{wanted}, of {shown} dimensions, torch.strided. Fix: {fix}."
            )
            raise ValueError(msg)


def require_like(function: str, shape: tuple[int, ...], dtype: torch.dtype, **tensors: torch.Tensor) -> None:
    """Check that tensors are strided and have a given shape and dtype.

    Raises:
        ValueError: naming the first tensor that fails.
    """
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.dtype is not dtype or tensor.shape != shape:
            if tensor.layout is not torch.strided:
                fix = f"pass {name}.to_dense()"
            elif tensor.shape == shape:
                fix = f"pass {name}.to({dtype})"
            elif tensor.numel() == math.prod(shape):
                fix = f"pass {name}.reshape{shape}"
            else:
                fix = f"pass {math.prod(shape)} elements; it has {tensor.numel()}"
            msg = (
                f"{function} failed: got {name}, {tensor.dtype} of shape {tuple(tensor.shape)}, {tensor.layout}; expected "
                f"{dtype} of shape {shape}, torch.strided. Fix: {fix}."
            )
            raise ValueError(msg)
