"""The dense layer's activation in Triton: bias and sigmoid in one pass, and both gradients in one."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..functions.dense import rows_of

__all__ = ["TritonDense"]

_BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _forward(z, bias, y, count, columns, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(z + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        value += tl.load(bias + at % columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + at, (1.0 / (1.0 + tl.exp(-value))).to(y.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _backward(grad, y, grad_z, count, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    slope = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(grad_z + at, (slope * value * (1.0 - value)).to(grad_z.dtype.element_ty), mask=inside)


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        y = torch.empty_like(z)
        given = z if bias is None else bias.contiguous()
        grid = (triton.cdiv(z.numel(), _BLOCK),)
        if z.numel():
            _forward[grid](z, given, y, z.numel(), z.shape[-1], HAS_BIAS=bias is not None, BLOCK=_BLOCK)
        ctx.save_for_backward(y)
        ctx.has_bias = bias is not None
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        (y,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives, use torch's own differentiable operations
            grad_z = grad * y * (1 - y)
        else:
            grad_z, d = torch.empty_like(y), grad.contiguous()
            if y.numel():
                _backward[(triton.cdiv(y.numel(), _BLOCK),)](d, y, grad_z, y.numel(), BLOCK=_BLOCK)
        return grad_z, rows_of(grad_z).sum(0) if ctx.has_bias else None


class TritonDense:
    """``dense`` of ``functions/dense.py``, with the same arguments."""

    def dense(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Return ``sigmoid(x @ weight.T + bias)``."""
        y: torch.Tensor = _Activation.apply((x @ weight.t()).contiguous(), bias)  # type: ignore[no-untyped-call]
        return y
