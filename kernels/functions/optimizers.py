"""The functions of the multi-tensor optimizers: one in-place call per step, for any number of parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from .registration import OpFunctions, mark_changed, nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AdagradFunctions", "LambFunctions", "LionFunctions", "MultiTensorAdamFunctions", "SGDFunctions"]


class _OptimizerFunctions(OpFunctions):
    """One torch op, called with the parameters first."""

    OP: ClassVar[str]

    def _run(self, params: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> Any:
        if not params:
            _require_none(self.OP, arguments)
            return None  # without a tensor, the dispatcher could not choose a device
        result = getattr(self, f"_{self.OP}")(params, *arguments, **options)
        mark_changed(params)
        return result


def _require_none(op: str, lists: Sequence[Any]) -> None:
    """Check that there are no gradients and states where there are no parameters."""
    counts = [len(tensors) for tensors in lists if isinstance(tensors, list | tuple)]
    if any(counts):
        msg = (
            f"{op} failed: got no parameters, and lists of {counts} gradients and states; expected as many of each. "
            f"Fix: pass the parameters to which they belong."
        )
        raise RuntimeError(msg)


class MultiTensorAdamFunctions(_OptimizerFunctions):
    """Adam and AdamW."""

    OP = "multi_tensor_adam_step"
    OPS: ClassVar = {OP: (nothing,)}

    def multi_tensor_adam_step(
        self, params: Sequence[torch.Tensor], grads: Sequence[torch.Tensor], exp_avgs: Sequence[torch.Tensor],
        exp_avg_sqs: Sequence[torch.Tensor], steps: Sequence[int], *, lr: float, beta1: float = 0.9,
        beta2: float = 0.999, weight_decay: float = 0.0, eps: float = 1e-8, adamw_mode: bool = True,
        bias_correction: bool = True, maximize: bool = False, noop_flag: torch.Tensor | None = None,
        grad_scale: torch.Tensor | None = None, device_lr: torch.Tensor | None = None,
        device_steps: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        """Take one step of every parameter.

        Args:
            params: float32, bfloat16 or float16.
            grads: the gradients, with the same shapes, each of any of these dtypes.
            exp_avgs: the first moments, float32.
            exp_avg_sqs: the second moments, float32.
            steps: the number of each parameter's step, counted from 1; empty with ``device_steps``.
            lr: the learning rate; ignored with ``device_lr``.
            beta1: the decay of the first moment.
            beta2: the decay of the second moment.
            weight_decay: the decay of the parameter.
            eps: added to the root of the second moment.
            adamw_mode: decay the parameter itself (AdamW) rather than add to the gradient (Adam).
            bias_correction: correct the moments for their start at zero.
            maximize: step along the gradient instead of against it.
            noop_flag: one int32 or float32 on the device; if it is not zero, nothing is done.
            grad_scale: one float32 on the device; gradients are divided by it.
            device_lr: one float32 on the device, the learning rate.
            device_steps: float32 ``(params,)`` on the device, the number of steps of each parameter so far.

        Raises:
            RuntimeError: naming the argument, before anything is written.

        Source: tests/ops/optimizers_reference.py
        """
        self._run(
            params, grads, exp_avgs, exp_avg_sqs, list(steps), noop_flag=noop_flag, grad_scale=grad_scale,
            device_lr=device_lr, device_steps=device_steps, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay,
            eps=eps, decoupled=adamw_mode, bias_correction=bias_correction, maximize=maximize,
        )  # fmt: skip


class LionFunctions(_OptimizerFunctions):
    """Lion."""

    OP = "lion_step"
    OPS: ClassVar = {OP: (nothing,)}

    def lion_step(
        self, params: Sequence[torch.Tensor], grads: Sequence[torch.Tensor], exp_avgs: Sequence[torch.Tensor], *,
        lr: float, beta1: float = 0.9, beta2: float = 0.99, weight_decay: float = 0.0, maximize: bool = False,
        noop_flag: torch.Tensor | None = None, grad_scale: torch.Tensor | None = None,
        device_lr: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        """Take one step of every parameter, in place.

        Args:
            params: float32, bfloat16 or float16, on one device.
            grads: the gradients, with the same shapes, each of any of these dtypes.
            exp_avgs: the momenta, float32.
            lr: the learning rate; ignored with ``device_lr``.
            beta1: the share of the momentum in the step's direction.
            beta2: the decay of the momentum.
            weight_decay: the decay of the parameter.
            maximize: step along the gradient instead of against it.
            noop_flag: one int32 or float32 on the device; if it is not zero, nothing is done.
            grad_scale: one float32 on the device; gradients are divided by it.
            device_lr: one float32 on the device, the learning rate.

        Raises:
            RuntimeError: naming the argument, before anything is written.

        Source: Chen et al., arXiv:2302.06675; tests/ops/optimizers_reference.py
        """
        self._run(
            params, grads, exp_avgs, noop_flag=noop_flag, grad_scale=grad_scale, device_lr=device_lr, lr=lr,
            beta1=beta1, beta2=beta2, weight_decay=weight_decay, maximize=maximize,
        )  # fmt: skip


class AdagradFunctions(_OptimizerFunctions):
    """Adagrad."""

    OP = "adagrad_step"
    OPS: ClassVar = {OP: (nothing,)}

    def adagrad_step(
        self, params: Sequence[torch.Tensor], grads: Sequence[torch.Tensor], sums: Sequence[torch.Tensor], *,
        lr: float, weight_decay: float = 0.0, eps: float = 1e-10, maximize: bool = False,
        noop_flag: torch.Tensor | None = None, grad_scale: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        """Take one step of every parameter, in place.

        Args:
            params: float32, bfloat16 or float16, on one device.
            grads: the gradients, with the same shapes, each of any of these dtypes.
            sums: the sums of squared gradients so far, float32.
            lr: the learning rate.
            weight_decay: this factor times the parameter is added to its gradient.
            eps: added to the root of the sum.
            maximize: step along the gradient instead of against it.
            noop_flag: one int32 or float32 on the device; if it is not zero, nothing is done.
            grad_scale: one float32 on the device; gradients are divided by it.

        Raises:
            RuntimeError: naming the argument, before anything is written.

        Source: Duchi et al., JMLR 12 (2011); tests/ops/optimizers_reference.py
        """
        self._run(
            params, grads, sums, noop_flag=noop_flag, grad_scale=grad_scale, lr=lr, weight_decay=weight_decay,
            eps=eps, maximize=maximize,
        )  # fmt: skip


class SGDFunctions(_OptimizerFunctions):
    """Stochastic gradient descent with momentum."""

    OP = "sgd_step"
    OPS: ClassVar = {OP: (nothing,)}

    def sgd_step(
        self, params: Sequence[torch.Tensor], grads: Sequence[torch.Tensor],
        momentum_buffers: Sequence[torch.Tensor], *, lr: float, momentum: float = 0.0, dampening: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False, maximize: bool = False, first_step: bool = False,
        noop_flag: torch.Tensor | None = None, grad_scale: torch.Tensor | None = None,
        device_lr: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        """Take one step of every parameter, in place, like ``torch.optim.SGD``.

        Args:
            params: float32, bfloat16 or float16, on one device.
            grads: the gradients, with the same shapes, each of any of these dtypes.
            momentum_buffers: float32. May be empty if ``momentum`` is 0; temporary ones are used then.
            lr: the learning rate; ignored with ``device_lr``.
            momentum: the decay of the buffers.
            dampening: the part of a gradient that is not added to its buffer.
            weight_decay: this factor times the parameter is added to its gradient.
            nesterov: use Nesterov momentum.
            maximize: step along the gradient instead of against it.
            first_step: set the buffers, which may be uninitialised, to the gradients instead of adding to them.
            noop_flag: one int32 or float32 on the device; if it is not zero, nothing is done.
            grad_scale: one float32 on the device; gradients are divided by it.
            device_lr: one float32 on the device, the learning rate.

        Raises:
            RuntimeError: naming the argument, before anything is written.

        Source: tests/ops/optimizers_reference.py
        """
        self._run(
            params, grads, momentum_buffers, noop_flag=noop_flag, grad_scale=grad_scale, device_lr=device_lr, lr=lr,
            momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize,
            first_step=first_step,
        )  # fmt: skip


def _ratios_fake(params: Sequence[torch.Tensor], *_: Any, **__: Any) -> torch.Tensor:
    return params[0].new_empty(len(params), dtype=torch.float32)


class LambFunctions(_OptimizerFunctions):
    """LAMB."""

    OP = "lamb_step"
    OPS: ClassVar = {OP: (_ratios_fake,)}

    def lamb_step(
        self, params: Sequence[torch.Tensor], grads: Sequence[torch.Tensor], exp_avgs: Sequence[torch.Tensor],
        exp_avg_sqs: Sequence[torch.Tensor], step: int, *, lr: float, beta1: float = 0.9, beta2: float = 0.999,
        weight_decay: float = 0.0, eps: float = 1e-8, min_coeff: float = 0.01, max_coeff: float = 10.0,
        bias_correction: bool = True, eps_inside_sqrt: bool = False, maximize: bool = False,
        noop_flag: torch.Tensor | None = None, grad_scale: torch.Tensor | None = None,
        device_lr: torch.Tensor | None = None, device_steps: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Take one step of every parameter, in place.

        Args:
            params: float32, bfloat16 or float16, on one device.
            grads: the gradients, with the same shapes, each of any of these dtypes.
            exp_avgs: the first moments, float32.
            exp_avg_sqs: the second moments, float32.
            step: the number of the step to take, counted from 1; 0 with ``device_steps``.
            lr: the learning rate; ignored with ``device_lr``.
            beta1: the decay of the first moment.
            beta2: the decay of the second moment.
            weight_decay: this factor times the parameter is added to its step.
            eps: added to the root of the second moment.
            min_coeff: the smallest ratio of a parameter's norm and its step's norm.
            max_coeff: the largest ratio.
            bias_correction: correct the moments for their start at zero.
            eps_inside_sqrt: add ``eps`` before taking the square root.
            maximize: step along the gradient instead of against it.
            noop_flag: one int32 or float32 on the device; if it is not zero, nothing is done.
            grad_scale: one float32 on the device; gradients are divided by it.
            device_lr: one float32 on the device, the learning rate.
            device_steps: float32 ``(params,)`` on the device, the number of steps of each parameter so far.

        Returns:
            The ratio of each parameter, float32 ``(params,)``.

        Raises:
            RuntimeError: naming the argument, before anything is written.

        Source: You et al., arXiv:1904.00962, as in deepspeed 0.19.8; tests/ops/optimizers_reference.py
        """
        ratios: torch.Tensor = self._run(
            params, grads, exp_avgs, exp_avg_sqs, step, noop_flag=noop_flag, grad_scale=grad_scale,
            device_lr=device_lr, device_steps=device_steps, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay,
            eps=eps, min_coeff=min_coeff, max_coeff=max_coeff, bias_correction=bias_correction,
            eps_inside_sqrt=eps_inside_sqrt, maximize=maximize,
        )  # fmt: skip
        return torch.empty(0, dtype=torch.float32, device="cpu") if ratios is None else ratios
