"""Optimizers in the manner of ``torch.optim``, each a few launches a step whatever the number of parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .multi_tensor_optimizer import MultiTensorOptimizer, by_value, refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch.optim.optimizer import ParamsT

__all__ = ["CPUAdagrad", "CPULion", "FusedAdam", "FusedLamb", "FusedLion", "FusedSGD"]


class FusedAdam(MultiTensorOptimizer):
    """AdamW (or Adam), whose state dicts are exchangeable with ``torch.optim.AdamW``'s and :class:`CPUAdam`'s.

    Args:
        params: parameters or groups of them; float32, bfloat16 or float16.
        lr: the learning rate.
        betas: the decays of the first and the second moment.
        eps: added to the root of the second moment.
        weight_decay: the decay of the parameters.
        adamw_mode: decay the parameters themselves (AdamW); otherwise add the decay to the gradients (Adam).
        bias_correction: correct the moments for their start at zero.
        maximize: step along the gradient instead of against it.

    Raises:
        ValueError: for an option out of its range.

    Source: Loshchilov & Hutter, arXiv:1711.05101; tests/ops/optimizers_reference.py
    """

    LOADER = "MultiTensorAdamLoader"
    STATES = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, params: ParamsT, lr: float | torch.Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, *, adamw_mode: bool = True, bias_correction: bool = True,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
                "decoupled_weight_decay": adamw_mode, "bias_correction": bias_correction,
                # as torch.optim.AdamW's groups have them
                "amsgrad": False, "foreach": None, "capturable": False, "differentiable": False, "fused": None,
            },
        )  # fmt: skip

    def check(self, options: dict[str, Any]) -> None:
        super().check(options)
        if options.get("amsgrad"):
            raise refusal(self, "amsgrad", True, "False")

    def run(
        self,
        op: Any,
        group: dict[str, Any],
        lists: list[list[Any]],
        steps: list[int],
        key: Any,
        control: dict[str, Any],
    ) -> None:
        beta1, beta2 = group["betas"]
        op.multi_tensor_adam_step(
            *lists, steps, lr=float(group["lr"]), beta1=float(beta1), beta2=float(beta2),
            eps=group["eps"], weight_decay=group["weight_decay"], maximize=group["maximize"],
            adamw_mode=group.get("decoupled_weight_decay", True), bias_correction=group.get("bias_correction", True),
            **control,
        )  # fmt: skip


class FusedLion(MultiTensorOptimizer):
    """Lion.

    Args:
        params: parameters or groups of them; float32, bfloat16 or float16.
        lr: the learning rate; a tenth of Adam's, or less.
        betas: of the interpolation, and the decay of the momentum.
        weight_decay: the decay of the parameters.
        maximize: step along the gradient instead of against it.

    Raises:
        ValueError: for an option out of its range.

    Source: Chen et al., arXiv:2302.06675; tests/ops/optimizers_reference.py
    """

    LOADER = "LionLoader"
    STATES = ("exp_avg",)

    def __init__(
        self, params: ParamsT, lr: float | torch.Tensor = 1e-4, betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    def run(
        self,
        op: Any,
        group: dict[str, Any],
        lists: list[list[Any]],
        steps: list[int],
        key: Any,
        control: dict[str, Any],
    ) -> None:
        beta1, beta2 = group["betas"]
        op.lion_step(
            *lists, lr=float(group["lr"]), beta1=float(beta1), beta2=float(beta2), weight_decay=group["weight_decay"],
            maximize=group["maximize"], **control,
        )  # fmt: skip


class CPULion(FusedLion):
    """Lion for parameters in host memory: :class:`FusedLion`, which refuses others."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, all on the CPU."""
        super().add_param_group(param_group)
        _require_cpu(self)


class CPUAdagrad(MultiTensorOptimizer):
    """Adagrad for parameters in host memory, whose state dicts are exchangeable with ``torch.optim.Adagrad``'s.

    Args:
        params: parameters or groups of them; float32, bfloat16 or float16.
        lr: the learning rate.
        lr_decay: how much it falls: ``lr / (1 + steps * lr_decay)``.
        weight_decay: added to the gradients as a multiple of the parameters.
        initial_accumulator_value: what the sums of squares begin with.
        eps: added to the roots of the sums.
        maximize: step along the gradient instead of against it.

    Raises:
        ValueError: for an option out of its range, or a parameter that is elsewhere.

    Source: Duchi et al., JMLR 12 (2011); tests/ops/optimizers_reference.py
    """

    LOADER = "AdagradLoader"
    STATES = ("sum",)

    def __init__(
        self, params: ParamsT, lr: float | torch.Tensor = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps, "maximize": maximize,
                "initial_accumulator_value": initial_accumulator_value,
            },
        )  # fmt: skip

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, all on the CPU."""
        super().add_param_group(param_group)
        _require_cpu(self)

    def first_value(self, group: dict[str, Any]) -> float:
        return float(group["initial_accumulator_value"])

    def alike(self, steps: list[float], fresh: list[bool]) -> list[tuple[Any, Sequence[int]]]:
        return by_value(steps)  # the decayed learning rate is the call's

    def run(
        self,
        op: Any,
        group: dict[str, Any],
        lists: list[list[Any]],
        steps: list[int],
        key: Any,
        control: dict[str, Any],
    ) -> None:
        taken = steps[0] - 1
        op.adagrad_step(
            *lists, lr=float(group["lr"]) / (1 + taken * group["lr_decay"]), weight_decay=group["weight_decay"],
            eps=group["eps"], maximize=group["maximize"], **control,
        )  # fmt: skip


class FusedSGD(MultiTensorOptimizer):
    """SGD with momentum, whose state dicts are exchangeable with ``torch.optim.SGD``'s.

    Args:
        params: parameters or groups of them; float32, bfloat16 or float16.
        lr: the learning rate.
        momentum: of the buffer.
        dampening: how much less of a gradient enters the buffer.
        weight_decay: added to the gradients as a multiple of the parameters.
        nesterov: look ahead; needs a momentum and no dampening.
        maximize: step along the gradient instead of against it.

    Raises:
        ValueError: for an option out of its range.

    Source: torch.optim.SGD; tests/ops/optimizers_reference.py
    """

    LOADER = "SGDLoader"
    STATES = ("momentum_buffer",)
    COUNTS: ClassVar = False

    def __init__(
        self, params: ParamsT, lr: float | torch.Tensor = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                "nesterov": nesterov, "maximize": maximize,
            },
        )  # fmt: skip

    def check(self, options: dict[str, Any]) -> None:
        super().check(options)
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise refusal(self, "nesterov", True, "a momentum and no dampening with it")

    def alike(self, steps: list[float], fresh: list[bool]) -> list[tuple[Any, Sequence[int]]]:
        return by_value(fresh)

    def run(
        self,
        op: Any,
        group: dict[str, Any],
        lists: list[list[Any]],
        steps: list[int],
        key: Any,
        control: dict[str, Any],
    ) -> None:
        op.sgd_step(
            *lists, lr=float(group["lr"]), momentum=group["momentum"], dampening=group["dampening"],
            weight_decay=group["weight_decay"], nesterov=group["nesterov"], maximize=group["maximize"],
            first_step=key, **control,
        )  # fmt: skip


class FusedLamb(MultiTensorOptimizer):
    """LAMB, with deepspeed's options.

    Args:
        params: parameters or groups of them; float32, bfloat16 or float16.
        lr: the learning rate.
        bias_correction: correct the moments for their start at zero.
        betas: the decays of the first and the second moment.
        eps: added to the root of the second moment.
        eps_inside_sqrt: add it inside the root.
        weight_decay: the decay of the parameters.
        max_coeff: the largest ratio of norms.
        min_coeff: the smallest.
        maximize: step along the gradient instead of against it.

    Raises:
        ValueError: for an option out of its range.

    Source: You et al., arXiv:1904.00962; tests/ops/optimizers_reference.py
    """

    LOADER = "LambLoader"
    SHARDS = False
    STATES = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, params: ParamsT, lr: float | torch.Tensor = 1e-3, bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, eps_inside_sqrt: bool = False,
        weight_decay: float = 0.0, max_coeff: float = 10.0, min_coeff: float = 0.01, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps,
                "eps_inside_sqrt": eps_inside_sqrt, "weight_decay": weight_decay, "max_coeff": max_coeff,
                "min_coeff": min_coeff, "maximize": maximize,
            },
        )  # fmt: skip

    def alike(self, steps: list[float], fresh: list[bool]) -> list[tuple[Any, Sequence[int]]]:
        return by_value(steps)  # the bias correction is the call's

    def run(
        self,
        op: Any,
        group: dict[str, Any],
        lists: list[list[Any]],
        steps: list[int],
        key: Any,
        control: dict[str, Any],
    ) -> None:
        beta1, beta2 = group["betas"]
        op.lamb_step(
            *lists, steps[0], lr=float(group["lr"]), beta1=float(beta1), beta2=float(beta2),
            eps=group["eps"], weight_decay=group["weight_decay"], min_coeff=group["min_coeff"],
            max_coeff=group["max_coeff"], bias_correction=group["bias_correction"],
            eps_inside_sqrt=group["eps_inside_sqrt"], maximize=group["maximize"], **control,
        )  # fmt: skip


def _require_cpu(optimizer: MultiTensorOptimizer) -> None:
    for param in optimizer.param_groups[-1]["params"]:
        if param.device.type != "cpu":
            raise refusal(optimizer, "a parameter's device", param.device, "cpu")
