"""deepspeed 0.19.8's LAMB, with its function name and arguments, on this project's kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...kernels.functions.outputs import (
    in_float32,
    in_shapes_of,
    is_same_place,
    require_apart,
    require_one_place_each,
    require_shape,
)
from .optimizers import refuse_float64

if TYPE_CHECKING:
    from ...kernels.functions.optimizers import LambFunctions

__all__ = ["FusedLambModule"]


class FusedLambModule:
    """The module ``fused_lamb``."""

    def __init__(self, op: LambFunctions) -> None:
        self._op = op

    def lamb(
        self, param: torch.Tensor, param_copy: torch.Tensor, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor,
        grad: torch.Tensor, lr: float, beta1: float, beta2: float, max_coeff: float, min_coeff: float, eps: float,
        grad_scale: float, step: int, mode: int, bias_correction: Any, weight_decay: float,
    ) -> torch.Tensor:  # fmt: skip
        """Take step number ``step`` of one parameter, in place.

        Args:
            param: the parameter, of any shape; float32, bfloat16 or float16; written.
            param_copy: receives a copy of the parameter, in its own dtype, unless it is empty.
            exp_avg: the first moment, with param's number of elements; written.
            exp_avg_sq: the second moment, like ``exp_avg``.
            grad: the gradient, with param's number of elements.
            lr: the learning rate.
            beta1: the decay of the first moment.
            beta2: the decay of the second moment.
            max_coeff: the largest trust ratio.
            min_coeff: the smallest trust ratio.
            eps: added inside the square root if mode is 0, otherwise to the root.
            grad_scale: the gradient is divided by it.
            step: the number of this step, from 1.
            mode: see eps.
            bias_correction: correct the moments for their start at zero.
            weight_decay: the decay of the parameter.

        Returns:
            The parameter's trust ratio, float32 ``(1,)``.

        Raises:
            ValueError: when the mode is neither 0 nor 1, or the gradient's scale is 0.
            NotImplementedError: when the parameter is float64.
            RuntimeError: naming the argument, before anything is written.
        """
        if mode not in (0, 1):
            raise ValueError(f"lamb failed: got mode {mode}; expected 0 or 1. Fix: pass mode=1 to add eps to the root.")
        _refuse_zero("lamb", grad_scale)
        refuse_float64("lamb", [param])
        _require_copy(param_copy, param, exp_avg, exp_avg_sq)
        scale = torch.full((1,), grad_scale, dtype=torch.float32, device=param.device)
        with in_float32([exp_avg], [exp_avg_sq]) as (exp_avgs, exp_avg_sqs):
            ratio: torch.Tensor = in_shapes_of(
                lambda p, g, m, v, **options: self._op.lamb_step(p, g, m, v, step, **options),
                [param], [grad], exp_avgs, exp_avg_sqs, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, eps=eps,
                min_coeff=min_coeff, max_coeff=max_coeff, bias_correction=bool(bias_correction),
                eps_inside_sqrt=mode == 0, grad_scale=scale,
            )  # fmt: skip
        if param_copy.numel() > 0:
            with torch.no_grad():  # deepspeed passes the model's own parameters
                param_copy.copy_(param)
        return ratio


def _require_copy(param_copy: torch.Tensor, param: torch.Tensor, *states: torch.Tensor) -> None:
    """Check what torch's ``copy_`` would convert, transfer, or write over."""
    require_one_place_each("lamb", param_copy)
    require_shape("lamb", param_copy, param)
    is_there = param_copy.device == param.device and param_copy.layout is torch.strided
    if not param_copy.is_floating_point() or (param_copy.numel() and not is_there):
        msg = (
            f"lamb failed: got a copy of {param_copy.dtype}, {param_copy.layout}, on {param_copy.device} for a parameter on "
            f"{param.device}; expected strided floats on its device, or no elements. "
            f"Fix: pass torch.empty_like(param), or torch.empty(0)."
        )
        raise RuntimeError(msg)
    is_same = is_same_place(param_copy, param)  # deepspeed may pass the parameter itself
    require_apart("lamb", [param_copy, *states, *([] if is_same else [param])])


def _refuse_zero(function: str, grad_scale: float) -> None:
    if grad_scale == 0:
        raise ValueError(f"{function} failed: got grad_scale=0, a divisor. Fix: pass the loss scale, or 1.")
