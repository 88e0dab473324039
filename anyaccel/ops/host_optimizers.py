"""``CPULion`` and ``CPUAdagrad``: optimizers for parameters in host memory only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .fused_optimizers import FusedLion
from .multi_tensor_optimizer import MultiTensorOptimizer, by_value, refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch.optim.optimizer import ParamsT

__all__ = ["CPUAdagrad", "CPULion"]


class CPULion(FusedLion):
    """Lion for parameters in host memory: :class:`FusedLion`, but it refuses parameters on other devices.

    A step is ``param -= lr * (weight_decay * param + sign(beta1 * m + (1 - beta1) * grad))``, then
    ``m = beta2 * m + (1 - beta2) * grad``; the sign of 0 is 0. The momentum ``m`` is float32 whatever the parameters' dtype.

    Args:
        params: parameters or groups of them, as for any torch optimizer; float32, bfloat16 or float16, of any shape and
            strides, on the CPU, with dense gradients. ``DTensor`` shards work too.
        lr: the learning rate, 0 or more; a number or a tensor of one. A tenth of Adam's, or less, is usual.
        betas: the rate of the interpolation and the decay rate of the momentum, each in ``[0, 1)``.
        weight_decay: the decay of the parameters, 0 or more; usually larger than Adam's.
        maximize: step along the gradient instead of against it.
        capturable: let a step be captured in a graph, after one that is not: the number of the step, and a learning rate
            that is a tensor on the parameters' device, are read on the device at every replay; other options are as captured.

    Raises:
        ValueError: if an option is out of its range, or a parameter is not on the CPU.
        RuntimeError: from ``step``, if a dtype is not supported or a gradient is sparse; the parameters of that
            group are unchanged then.
        OpError: from the first ``step``, if the kernel cannot be built or loaded on this machine.

    Source: Chen et al., arXiv:2302.06675; tests/ops/optimizers_reference.py

    Example:
        >>> parameter = torch.nn.Parameter(torch.ones(2))
        >>> optimizer, parameter.grad = CPULion([parameter], lr=0.5), torch.tensor([3.0, -0.1])
        >>> optimizer.step(), parameter.tolist()
        (None, [0.5, 1.5])
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add ``param_group``, in the form of ``torch.optim.Optimizer``, with all parameters on the CPU."""
        super().add_param_group(param_group)
        _require_cpu(self)


class CPUAdagrad(MultiTensorOptimizer):
    """Adagrad for parameters in host memory; updates a whole group with one kernel call.

    With ``g = grad + weight_decay * param`` and ``sum += g ** 2``, step number ``t`` (from 0) is
    ``param -= lr / (1 + t * lr_decay) * g / (sqrt(sum) + eps)``. The sums are float32 whatever the parameters' dtype. State dicts
    load from and into ``torch.optim.Adagrad``, and from deepspeed's ``DeepSpeedCPUAdagrad``, which calls the sums ``exp_avg_sq``.

    Args:
        params: parameters or groups of them, as for any torch optimizer; float32, bfloat16 or float16, of any shape and
            strides, on the CPU, with dense gradients. ``DTensor`` shards work too.
        lr: the learning rate, 0 or more; a number or a tensor of one.
        lr_decay: how fast the learning rate falls, 0 or more.
        weight_decay: the multiple of the parameters that is added to the gradients, 0 or more.
        initial_accumulator_value: what the sums start with; 0 or more, which is not checked.
        eps: added to the roots of the sums, 0 or more.
        maximize: step along the gradient instead of against it.

    Raises:
        ValueError: if an option is out of its range, or a parameter is not on the CPU.
        RuntimeError: from ``step``, if a dtype is not supported or a gradient is sparse; those parameters of
            that group that have the same dtypes and number of steps are unchanged then.
        OpError: from the first ``step``, if the kernel cannot be built or loaded on this machine.

    Source: Duchi et al., JMLR 12 (2011); tests/ops/optimizers_reference.py

    Example:
        >>> parameter = torch.nn.Parameter(torch.ones(2))
        >>> optimizer, parameter.grad = CPUAdagrad([parameter], lr=0.5), torch.tensor([3.0, -0.1])
        >>> optimizer.step(), parameter.tolist()
        (None, [0.5, 1.5])
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
        """Add ``param_group``, as ``torch.optim.Optimizer`` takes it, with all parameters on the CPU."""
        super().add_param_group(param_group)
        _require_cpu(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state dict of this class, of ``torch.optim.Adagrad``, or of deepspeed's ``DeepSpeedCPUAdagrad``.

        Args:
            state_dict: what ``state_dict()`` of one of them returned; its tensors are copied.
        """
        names = {"exp_avg_sq": "sum"}  # deepspeed's
        states = {
            param: {names.get(key, key): value for key, value in state.items()}
            for param, state in state_dict["state"].items()
        }
        super().load_state_dict({**state_dict, "state": states})

    def _first_value(self, group: dict[str, Any]) -> float:
        return float(group["initial_accumulator_value"])

    def _alike(self, steps: list[float], fresh: list[bool]) -> list[tuple[Any, Sequence[int]]]:
        return by_value(steps)  # the call applies the decayed learning rate

    def _run(
        self,
        op: Any,
        group: dict[str, Any],
        lists: list[list[Any]],
        steps: list[int] | torch.Tensor,
        key: Any,
        common: dict[str, Any],
    ) -> None:
        decayed = common["lr"]
        if group["lr_decay"] != 0:  # which a traced number of the step cannot be part of
            decayed /= 1 + (steps[0] - 1) * group["lr_decay"]
        op.adagrad_step(
            *lists, weight_decay=group["weight_decay"], eps=group["eps"], maximize=group["maximize"],
            **{**common, "lr": decayed},
        )  # fmt: skip


def _require_cpu(optimizer: MultiTensorOptimizer) -> None:
    for param in optimizer.param_groups[-1]["params"]:
        if param.device.type != "cpu":
            del optimizer.param_groups[-1]
            raise refusal(
                optimizer,
                "a parameter's device",
                param.device,
                "cpu",
                "keep a copy of it on the CPU, or use a fused optimizer",
            )
