"""Writing results to tensors that a caller gave for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["require_one_place_each", "write_output"]


def write_output(function: str, output: torch.Tensor, result: torch.Tensor) -> None:
    """Write a result to a given tensor, which must be one like it: ``copy_`` would repeat or convert what does not fit.

    Raises:
        RuntimeError: when it is not, or its elements share memory.
    """
    if (output.shape, output.dtype, output.layout) != (result.shape, result.dtype, result.layout):
        msg = (
            f"{function} failed: got a {output.dtype} output of shape {tuple(output.shape)}; expected {result.dtype} of shape "
            f"{tuple(result.shape)}. Fix: pass torch.empty_like(...) of the input."
        )
        raise RuntimeError(msg)
    require_one_place_each(function, output)
    output.copy_(result)


def require_one_place_each(function: str, output: torch.Tensor) -> None:
    """Check that the elements of a tensor that is written lie apart: that each dimension steps over all smaller ones.

    Raises:
        RuntimeError: when that is not proven.
    """
    reach = 0
    for stride, size in sorted(zip(output.stride(), output.shape, strict=True)):
        if size > 1 and stride <= reach and output.numel() > 0:
            msg = (
                f"{function} failed: got an output of strides {output.stride()}, whose elements share memory; expected one "
                f"place for each. Fix: pass a clone of it."
            )
            raise RuntimeError(msg)
        reach += stride * (size - 1)
