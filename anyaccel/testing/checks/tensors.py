"""Typed tensors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from .expect import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...accelerator import DeepSpeedAccelerator

__all__ = ["CHECKS"]


def _constructs(
    accelerator: DeepSpeedAccelerator, tensor_type: Callable[..., torch.Tensor], dtype: torch.dtype
) -> None:
    sized = tensor_type(3, 4)
    expect(
        sized.shape == (3, 4) and sized.dtype == dtype, f"(3, 4) gives a {sized.dtype} of shape {tuple(sized.shape)}"
    )
    expect(accelerator.on_accelerator(sized), f"(3, 4) gives a tensor on {sized.device}")
    filled = tensor_type([1, 2])
    values = filled.cpu().tolist()  # to print a tensor takes more of the device's kernels
    expect(filled.dtype == dtype and values == [1, 2], f"([1, 2]) gives {values} of {filled.dtype}")
    expect(tensor_type().numel() == 0, "() gives a tensor with elements")
    expect(tensor_type(torch.Size([2, 0])).shape == (2, 0), "(torch.Size([2, 0])) gives another shape")


def _typed_tensor(member: str, dtype: torch.dtype, accelerator: DeepSpeedAccelerator) -> None:
    _constructs(accelerator, getattr(accelerator, member), dtype)


def _tensor_type(accelerator: DeepSpeedAccelerator) -> None:
    _constructs(accelerator, accelerator.tensor_type(torch.int16), torch.int16)


CHECKS: dict[str, Callable[[DeepSpeedAccelerator], None]] = {
    "BFloat16Tensor": partial(_typed_tensor, "BFloat16Tensor", torch.bfloat16),
    "ByteTensor": partial(_typed_tensor, "ByteTensor", torch.uint8),
    "DoubleTensor": partial(_typed_tensor, "DoubleTensor", torch.float64),
    "FloatTensor": partial(_typed_tensor, "FloatTensor", torch.float32),
    "HalfTensor": partial(_typed_tensor, "HalfTensor", torch.float16),
    "IntTensor": partial(_typed_tensor, "IntTensor", torch.int32),
    "LongTensor": partial(_typed_tensor, "LongTensor", torch.int64),
    "tensor_type": _tensor_type,
}
