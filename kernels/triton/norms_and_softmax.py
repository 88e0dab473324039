"""RMSNorm and softmax in Triton, for GPUs: one program per row.

Memory traffic is that of ``csrc/includes/rms_norm.h`` and ``softmax.h``; a row must fit into a program's registers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from .launch_shape import launch_shape

__all__ = ["TritonRMSNorm", "TritonSoftmax"]

_MOST_COLUMNS = 65536


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _rms_forward(x, weight, y, inverse_rms, columns, eps, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, N803
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / columns + eps)
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * columns + at, (value * scale * factor).to(y.dtype.element_ty), mask=inside)
    tl.store(inverse_rms + row, scale)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _rms_backward(  # type: ignore[no-untyped-def]
    grad, x, weight, inverse_rms, grad_x, partials, rows, columns, BLOCK: tl.constexpr  # noqa: ANN001, N803
) -> None:  # fmt: skip
    program = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    mine = tl.zeros((BLOCK,), tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        begin = row.to(tl.int64) * columns if hasattr(row, "to") else row * columns
        value = tl.load(x + begin + at, mask=inside, other=0.0).to(tl.float32)
        slope = tl.load(grad + begin + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(inverse_rms + row)
        along = tl.sum(slope * factor * value, 0) * scale * scale * scale / columns
        result = slope * factor * scale - value * along
        tl.store(grad_x + begin + at, result.to(grad_x.dtype.element_ty), mask=inside)
        mine += slope * value * scale
    tl.store(partials + program * columns + at, mine, mask=inside)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _softmax_forward(x, y, columns, queries, scale, CAUSAL: tl.constexpr, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, N803
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    visible = inside
    if CAUSAL:
        visible = at < row % queries + 1 + columns - queries
    score = tl.load(x + row * columns + at, mask=visible, other=-float("inf")).to(tl.float32) * scale
    score = tl.where(visible, score, -float("inf"))
    largest = tl.max(score, 0)
    taken = tl.where(largest == -float("inf"), 0.0, largest)
    # fused with the product of the score, the subtraction would leave what rounding took from the largest one
    power = tl.exp(tl.where(score == taken, taken - taken, score - taken))
    total = tl.sum(power, 0)  # 0 where every visible score is -inf
    tl.store(y + row * columns + at, (power / tl.where(total == 0.0, 1.0, total)).to(y.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _softmax_backward(grad, y, grad_x, columns, scale, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, N803
    begin = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    slope = tl.load(grad + begin + at, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(y + begin + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(slope * value, 0)
    tl.store(grad_x + begin + at, (scale * value * (slope - mean)).to(grad_x.dtype.element_ty), mask=inside)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
        x, weight = x.contiguous(), weight.contiguous()
        columns = _columns(x)
        rows = x.numel() // max(1, columns)
        y = torch.empty_like(x)
        inverse_rms = x.new_empty(rows, dtype=torch.float32)
        if rows:
            _rms_forward[(rows,)](x, weight, y, inverse_rms, columns, eps, **launch_shape(columns))
        ctx.save_for_backward(x, weight, inverse_rms)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight, inverse_rms = ctx.saved_tensors
        columns, rows = x.shape[-1], inverse_rms.numel()
        grad_x = torch.empty_like(x)
        programs = max(1, min(rows, 256))
        partials = x.new_zeros((programs, columns), dtype=torch.float32)
        if rows:
            _rms_backward[(programs,)](
                grads[0].contiguous(), x, weight, inverse_rms, grad_x, partials, rows, columns, **launch_shape(columns)
            )
        return grad_x, partials.sum(0).to(weight.dtype), None


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float, is_causal: bool) -> Any:
        x = x.contiguous()
        columns = _columns(x)
        rows = x.numel() // max(1, columns)
        queries = x.shape[-2] if is_causal else 1
        y = torch.empty_like(x)
        if rows:
            _softmax_forward[(rows,)](x, y, columns, queries, scale, CAUSAL=is_causal, **launch_shape(columns))
        ctx.save_for_backward(y)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (y,) = ctx.saved_tensors
        grad_x = torch.empty_like(y)
        columns = y.shape[-1]
        if y.numel():
            rows = y.numel() // columns
            _softmax_backward[(rows,)](grads[0].contiguous(), y, grad_x, columns, ctx.scale, **launch_shape(columns))
        return grad_x, None, None


class TritonRMSNorm:
    """The functions of ``rms_norm``."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
        """Return ``x / sqrt(mean(x ** 2) + eps) * weight``, over the last dimension."""
        if weight.shape != x.shape[-1:] or weight.device != x.device:
            msg = (
                f"rms_norm failed: got weight of shape {tuple(weight.shape)} on {weight.device}; expected "
                f"({x.shape[-1] if x.dim() else 0},) on {x.device}. Fix: pass a weight with one element per column of x."
            )
            raise RuntimeError(msg)
        y: torch.Tensor = _RMSNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
        return y

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the normalised sum, and the sum, which torch computes."""
        total = x + residual
        return self.rms_norm(total, weight, eps), total


class TritonSoftmax:
    """The functions of ``softmax``; torch applies the mask."""

    def scaled_masked_softmax(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 1.0
    ) -> torch.Tensor:
        """Return ``softmax(scale * x)`` over the last dimension; 0 where the mask is True, and in fully masked rows."""
        if mask is None:
            y: torch.Tensor = _Softmax.apply(x, scale, False)  # type: ignore[no-untyped-call]
            return y
        hidden = mask.bool()
        if scale == 0:
            x, scale = x * 0, 1.0
        fill = -math.copysign(math.inf, scale)  # -inf after scaling
        y = _Softmax.apply(x.masked_fill(hidden, fill), scale, False)  # type: ignore[no-untyped-call]
        return y.masked_fill(hidden, 0.0)

    def scaled_upper_triang_masked_softmax(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """Return ``softmax(scale * x)``; 0 to the right of the diagonal, which ends in the last column."""
        y: torch.Tensor = _Softmax.apply(x, scale, True)  # type: ignore[no-untyped-call]
        return y


def _columns(x: torch.Tensor) -> int:
    columns = x.shape[-1]
    if columns > _MOST_COLUMNS or x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        msg = (
            f"a Triton kernel failed: got {x.dtype} with {columns} columns; expected float32, bfloat16 or float16 with "
            f"{_MOST_COLUMNS} at most. Fix: use the CUDA implementation, or convert x to "
            f"float32."
        )
        raise RuntimeError(msg)
    return columns
