"""``FusedAdam``, ``FusedLion``, ``FusedSGD`` and ``FusedLamb``: one call per step for any number of parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from .multi_tensor_optimizer import MultiTensorOptimizer, by_value, refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim.optimizer import ParamsT

__all__ = ["FusedAdam", "FusedLamb", "FusedLion", "FusedSGD"]


class FusedAdam(MultiTensorOptimizer):
    """AdamW (or Adam) that updates all parameters of a group and device with one kernel call.

    With ``m = beta1 * m + (1 - beta1) * grad`` and ``v = beta2 * v + (1 - beta2) * grad ** 2``, both divided by
    ``1 - beta ** step`` where they are used, a step is ``param -= lr * (weight_decay * param + m / (sqrt(v) + eps))``. The
    moments are float32 whatever the parameters' dtype. State dicts load from and into ``torch.optim.AdamW`` and :class:`CPUAdam`.
    ``step(noop_flag=..., grad_scale=...)`` takes an overflow flag and a divisor of the gradients that stay on the device.

    Args:
        params: parameters or groups of them, as for any torch optimizer; float32, bfloat16 or float16, of any shape and
            strides, on the CPU or a GPU, with dense gradients. ``DTensor`` shards work too.
        lr: the learning rate, 0 or more; a number or a tensor of one.
        betas: the decay rates of the first and the second moment, each in ``[0, 1)``.
        eps: added to the root of the second moment, 0 or more.
        weight_decay: the decay of the parameters, 0 or more.
        adamw_mode: decay the parameters themselves (AdamW); otherwise add ``weight_decay * param`` to the gradients (Adam).
        bias_correction: divide the moments by ``1 - beta ** step``, which corrects for their start at zero.
        maximize: step along the gradient instead of against it.
        capturable: let a step be captured in a graph, after one that is not: the number of the step, and a learning rate
            that is a tensor on the parameters' device, are read on the device at every replay; other options are as captured.

    Raises:
        ValueError: if an option is out of its range, or a group sets ``amsgrad``.
        RuntimeError: from ``step``, if a dtype is not supported or a gradient is sparse; the parameters of that
            group are unchanged then.
        OpError: from the first ``step``, if the kernel cannot be built or loaded on this machine.

    Source: Loshchilov & Hutter, arXiv:1711.05101; tests/ops/optimizers_reference.py

    Example:
        >>> parameter = torch.nn.Parameter(torch.ones(2))
        >>> optimizer, parameter.grad = FusedAdam([parameter], lr=0.5, weight_decay=0.0), torch.tensor([1.0, -1.0])
        >>> optimizer.step(), parameter.tolist()
        (None, [0.5, 1.5])
    """

    LOADER = "MultiTensorAdamLoader"
    STATES = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, params: ParamsT, lr: float | torch.Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, *, adamw_mode: bool = True, bias_correction: bool = True,
        maximize: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
                "decoupled_weight_decay": adamw_mode, "bias_correction": bias_correction,
                # like the groups of torch.optim.AdamW
                "amsgrad": False, "foreach": None, "capturable": capturable, "differentiable": False, "fused": None,
            },
        )  # fmt: skip

    def _check(self, options: dict[str, Any]) -> None:
        super()._check(options)
        if options.get("amsgrad"):
            raise refusal(self, "amsgrad", True, "False", "leave it out, or use torch.optim.AdamW")

    def _run(
        self,
        op: Any,
        group: dict[str, Any],
        lists: list[list[Any]],
        steps: list[int] | torch.Tensor,
        key: Any,
        common: dict[str, Any],
    ) -> None:
        beta1, beta2 = group["betas"]
        op.multi_tensor_adam_step(
            *lists, [] if isinstance(steps, torch.Tensor) else steps, beta1=float(beta1), beta2=float(beta2),
            device_steps=steps if isinstance(steps, torch.Tensor) else None,
            eps=group["eps"], weight_decay=group["weight_decay"], maximize=group["maximize"],
            adamw_mode=group.get("decoupled_weight_decay", True), bias_correction=group.get("bias_correction", True),
            **common,
        )  # fmt: skip


class FusedLion(MultiTensorOptimizer):
    """Lion that updates all parameters of a group and device with one kernel call.

    A step is ``param -= lr * (weight_decay * param + sign(beta1 * m + (1 - beta1) * grad))``, then
    ``m = beta2 * m + (1 - beta2) * grad``; the sign of 0 is 0. The momentum ``m`` is float32 whatever the parameters' dtype.
    ``step(noop_flag=..., grad_scale=...)`` takes an overflow flag and a divisor of the gradients that stay on the device.

    Args:
        params: parameters or groups of them, as for any torch optimizer; float32, bfloat16 or float16, of any shape and
            strides, on the CPU or a GPU, with dense gradients. ``DTensor`` shards work too.
        lr: the learning rate, 0 or more; a number or a tensor of one. A tenth of Adam's, or less, is usual.
        betas: the rate of the interpolation and the decay rate of the momentum, each in ``[0, 1)``.
        weight_decay: the decay of the parameters, 0 or more; usually larger than Adam's.
        maximize: step along the gradient instead of against it.
        capturable: let a step be captured in a graph, after one that is not: the number of the step, and a learning rate
            that is a tensor on the parameters' device, are read on the device at every replay; other options are as captured.

    Raises:
        ValueError: if an option is out of its range.
        RuntimeError: from ``step``, if a dtype is not supported or a gradient is sparse; the parameters of that
            group are unchanged then.
        OpError: from the first ``step``, if the kernel cannot be built or loaded on this machine.

    Source: Chen et al., arXiv:2302.06675; tests/ops/optimizers_reference.py

    Example:
        >>> parameter = torch.nn.Parameter(torch.ones(2))
        >>> optimizer, parameter.grad = FusedLion([parameter], lr=0.5), torch.tensor([3.0, -0.1])
        >>> optimizer.step(), parameter.tolist()
        (None, [0.5, 1.5])
    """

    LOADER = "LionLoader"
    STATES = ("exp_avg",)

    def __init__(
        self, params: ParamsT, lr: float | torch.Tensor = 1e-4, betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0, *, maximize: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize, "capturable": capturable},
        )

    def _run(
        self,
        op: Any,
        group: dict[str, Any],
        lists: list[list[Any]],
        steps: list[int] | torch.Tensor,
        key: Any,
        common: dict[str, Any],
    ) -> None:
        beta1, beta2 = group["betas"]
        op.lion_step(
            *lists, beta1=float(beta1), beta2=float(beta2), weight_decay=group["weight_decay"],
            maximize=group["maximize"], **common,
        )  # fmt: skip


class FusedSGD(MultiTensorOptimizer):
    """SGD with momentum that updates all parameters of a group and device with one kernel call.

    With ``g = grad + weight_decay * param`` and ``buffer = momentum * buffer + (1 - dampening) * g`` (``g`` itself in the first
    step), a step is ``param -= lr * buffer``, or with nesterov ``param -= lr * (g + momentum * buffer)``. The buffer is float32
    whatever the parameters' dtype, and is kept even if the momentum is 0. State dicts load from and into ``torch.optim.SGD``.
    ``step(noop_flag=..., grad_scale=...)`` takes an overflow flag and a divisor of the gradients that stay on the device.

    Args:
        params: parameters or groups of them, as for any torch optimizer; float32, bfloat16 or float16, of any shape and
            strides, on the CPU or a GPU, with dense gradients. ``DTensor`` shards work too.
        lr: the learning rate, 0 or more; a number or a tensor of one.
        momentum: how much of the buffer is kept, 0 or more.
        dampening: how much less of a gradient enters the buffer; not checked.
        weight_decay: the multiple of the parameters that is added to the gradients, 0 or more.
        nesterov: look ahead; needs a momentum above 0 and no dampening.
        maximize: step along the gradient instead of against it.
        capturable: let a step be captured in a graph, after one that is not: the number of the step, and a learning rate
            that is a tensor on the parameters' device, are read on the device at every replay; other options are as captured.

    Raises:
        ValueError: if an option is out of its range, or ``nesterov`` lacks its momentum.
        RuntimeError: from ``step``, if a dtype is not supported or a gradient is sparse; those parameters of
            that group that have the same dtypes and number of steps are unchanged then.
        OpError: from the first ``step``, if the kernel cannot be built or loaded on this machine.

    Source: torch.optim.SGD; tests/ops/optimizers_reference.py

    Example:
        >>> parameter = torch.nn.Parameter(torch.ones(2))
        >>> optimizer, parameter.grad = FusedSGD([parameter], lr=0.5, momentum=0.9), torch.tensor([1.0, -1.0])
        >>> optimizer.step(), parameter.tolist()
        (None, [0.5, 1.5])
    """

    LOADER = "SGDLoader"
    STATES = ("momentum_buffer",)
    COUNTS: ClassVar = False

    def __init__(
        self, params: ParamsT, lr: float | torch.Tensor = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False, *, maximize: bool = False,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                "nesterov": nesterov, "maximize": maximize, "capturable": capturable,
            },
        )  # fmt: skip

    def _check(self, options: dict[str, Any]) -> None:
        super()._check(options)
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise refusal(
                self, "nesterov", True, "a momentum and no dampening with it", "pass momentum=0.9 and no dampening"
            )

    def _alike(self, steps: list[float], fresh: list[bool]) -> list[tuple[Any, Sequence[int]]]:
        return by_value(fresh)

    def _run(
        self,
        op: Any,
        group: dict[str, Any],
        lists: list[list[Any]],
        steps: list[int] | torch.Tensor,
        key: Any,
        common: dict[str, Any],
    ) -> None:
        op.sgd_step(
            *lists, momentum=group["momentum"], dampening=group["dampening"],
            weight_decay=group["weight_decay"], nesterov=group["nesterov"], maximize=group["maximize"],
            first_step=key, **common,
        )  # fmt: skip


class FusedLamb(MultiTensorOptimizer):
    """LAMB with deepspeed's options; updates all parameters of a group and device with a few kernel calls.

    With Adam's moments ``m`` and ``v``, ``update = m / (sqrt(v) + eps) + weight_decay * param`` and
    ``ratio = clamp(norm(param) / norm(update), min_coeff, max_coeff)``, or 1 if a norm is 0, a step is
    ``param -= lr * correction * ratio * update``. The moments are float32 whatever the parameters' dtype.
    ``step(noop_flag=..., grad_scale=...)`` takes an overflow flag and a divisor of the gradients that stay on the device.

    Args:
        params: parameters or groups of them, as for any torch optimizer; float32, bfloat16 or float16, of any shape and
            strides, on the CPU or a GPU, with dense gradients. ``DTensor`` is
            refused, as norms need whole parameters.
        lr: the learning rate, 0 or more; a number or a tensor of one.
        bias_correction: let ``correction`` be ``sqrt(1 - beta2 ** step) / (1 - beta1 ** step)``; otherwise it is 1.
        betas: the decay rates of the first and the second moment, each in ``[0, 1)``.
        eps: added to the root of the second moment, 0 or more.
        eps_inside_sqrt: add eps inside the root: ``sqrt(v + eps)``.
        weight_decay: the multiple of the parameters in the update, 0 or more.
        max_coeff: the largest ratio; not checked.
        min_coeff: the smallest ratio; not checked.
        maximize: step along the gradient instead of against it.
        capturable: let a step be captured in a graph, after one that is not: the number of the step, and a learning rate
            that is a tensor on the parameters' device, are read on the device at every replay; other options are as captured.

    Raises:
        ValueError: if an option is out of its range.
        RuntimeError: from ``step``, if a dtype is not supported, a gradient is sparse or a parameter is a ``DTensor``.
        OpError: from the first ``step``, if the kernel cannot be built or loaded on this machine.

    Source: You et al., arXiv:1904.00962; deepspeed 0.19.8; tests/ops/optimizers_reference.py

    Example:
        >>> parameter = torch.nn.Parameter(torch.ones(2))
        >>> optimizer, parameter.grad = FusedLamb([parameter], lr=0.5, bias_correction=False), torch.tensor([1.0, -1.0])
        >>> optimizer.step(), parameter.tolist()
        (None, [0.5, 1.5])
    """

    LOADER = "LambLoader"
    SHARDS = False
    STATES = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, params: ParamsT, lr: float | torch.Tensor = 1e-3, bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, eps_inside_sqrt: bool = False,
        weight_decay: float = 0.0, max_coeff: float = 10.0, min_coeff: float = 0.01, *, maximize: bool = False,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps,
                "eps_inside_sqrt": eps_inside_sqrt, "weight_decay": weight_decay, "max_coeff": max_coeff,
                "min_coeff": min_coeff, "maximize": maximize, "capturable": capturable,
            },
        )  # fmt: skip

    def _alike(self, steps: list[float], fresh: list[bool]) -> list[tuple[Any, Sequence[int]]]:
        return by_value(steps)  # the call applies the bias correction

    def _run(
        self,
        op: Any,
        group: dict[str, Any],
        lists: list[list[Any]],
        steps: list[int] | torch.Tensor,
        key: Any,
        common: dict[str, Any],
    ) -> None:
        beta1, beta2 = group["betas"]
        op.lamb_step(
            *lists, 0 if isinstance(steps, torch.Tensor) else steps[0], beta1=float(beta1), beta2=float(beta2),
            device_steps=steps if isinstance(steps, torch.Tensor) else None,
            eps=group["eps"], weight_decay=group["weight_decay"], min_coeff=group["min_coeff"],
            max_coeff=group["max_coeff"], bias_correction=group["bias_correction"],
            eps_inside_sqrt=group["eps_inside_sqrt"], maximize=group["maximize"], **common,
        )  # fmt: skip
