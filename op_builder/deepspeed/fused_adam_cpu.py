"""deepspeed 0.19.8's module ``fused_adam`` on the CPU, by the op ``cpu_adam``, whose one call steps every tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..functions.cpu_adam import CPUAdamFunctions

__all__ = ["FusedAdamOnCpuModule"]


class FusedAdamOnCpuModule:
    """The functions of the loaded op."""

    def __init__(self, op: CPUAdamFunctions) -> None:
        self._op = op

    def multi_tensor_adam(
        self, chunk_size: int, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]], lr: float,
        beta1: float, beta2: float, epsilon: float, step: int, mode: int, bias_correction: Any, weight_decay: float,
    ) -> None:  # fmt: skip
        """Take step number ``step`` (counted from 1) of every parameter, in place.

        Args:
            chunk_size: accepted for deepspeed's sake; the work is cut evenly among threads.
            noop_flag: one integer; nothing is done when it is not zero, as after an overflow.
            tensor_lists: gradients, parameters, first and second moments, as many of each.
            lr: the learning rate.
            beta1: the decay of the first moment.
            beta2: the decay of the second moment.
            epsilon: added to the root of the second moment.
            step: the number of this step.
            mode: 0 adds the decay to the gradient (Adam), 1 decays the parameter itself (AdamW).
            bias_correction: correct the moments for their start at zero.
            weight_decay: the decay of the parameter.

        Raises:
            ValueError: when there are not four lists, or the mode or step is none.
            RuntimeError: naming the argument, before anything is written, when shapes, dtypes or devices do not fit.
        """
        if len(tensor_lists) != 4 or mode not in (0, 1) or step < 1:
            msg = (
                f"multi_tensor_adam failed: got {len(tensor_lists)} lists, mode {mode} and step {step}; expected "
                f"4 lists (gradients, parameters, two moments), mode 0 or 1, and a step from 1. Fix: correct the call."
            )
            raise ValueError(msg)
        if noop_flag.item() != 0:
            return
        grads, params, exp_avgs, exp_avg_sqs = tensor_lists
        state_steps = torch.full((len(params),), float(step - 1)).unbind()
        self._op.adam_step(
            params, grads, exp_avgs, exp_avg_sqs, state_steps, lr=lr, beta1=beta1, beta2=beta2, eps=epsilon,
            weight_decay=weight_decay, adamw_mode=mode == 1, bias_correction=bool(bias_correction),
        )  # fmt: skip
