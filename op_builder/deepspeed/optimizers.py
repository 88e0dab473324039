"""deepspeed 0.19.8's optimizer modules, with its function names and arguments, on this project's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...kernels.functions.outputs import in_float32, in_shapes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...kernels.functions.optimizers import AdagradFunctions, LionFunctions

__all__ = [
    "CPUAdagradModule",
    "CPULionModule",
    "FusedAdamModule",
    "FusedAdamOnCpuModule",
    "FusedLionModule",
    "refuse_float64",
]


class FusedAdamModule:
    """The module ``fused_adam``."""

    def __init__(self, op: Any) -> None:
        self._op = op

    def multi_tensor_adam(
        self, chunk_size: int, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]], lr: float,
        beta1: float, beta2: float, epsilon: float, step: int, mode: int, bias_correction: Any, weight_decay: float,
    ) -> None:  # fmt: skip
        """Take step number ``step`` (counted from 1) of every parameter, in place, without waiting for the device.

        Args:
            chunk_size: ignored: the work is split evenly.
            noop_flag: one int32 on the parameters' device; if it is not zero, such as after an overflow, nothing is done.
            tensor_lists: gradients, parameters, first and second moments; lists of equal length, with the same sizes
                at each position; float32, bfloat16 or float16, the moments float32 or of the parameter's dtype.
            lr: the learning rate.
            beta1: the decay of the first moment.
            beta2: the decay of the second moment.
            epsilon: added to the root of the second moment.
            step: the number of this step.
            mode: 0 adds the decay to the gradient (Adam), 1 decays the parameter itself (AdamW).
            bias_correction: correct the moments for their start at zero.
            weight_decay: the decay of the parameter.

        Raises:
            ValueError: when there are not four lists, the mode is neither 0 nor 1, or the step is below 1.
            NotImplementedError: when a parameter is float64.
            RuntimeError: naming the argument, before anything is written, when shapes, dtypes or devices do not fit.
        """
        _check("multi_tensor_adam", tensor_lists, 4, mode=mode)
        if step < 1:
            msg = f"multi_tensor_adam failed: got step {step}; expected 1 or more. Fix: pass step=1 in the first call."
            raise ValueError(msg)
        options = {
            "lr": lr, "beta1": beta1, "beta2": beta2, "eps": epsilon, "weight_decay": weight_decay,
            "adamw_mode": mode == 1, "bias_correction": bool(bias_correction),
        }  # fmt: skip
        grads, params, *states = tensor_lists
        refuse_float64("multi_tensor_adam", params)
        in_shapes_of(self._step, params, grads, *states, step=step, noop_flag=noop_flag, options=options)

    def _step(
        self, params: Sequence[torch.Tensor], grads: Sequence[torch.Tensor], *states: Sequence[torch.Tensor], step: int,
        noop_flag: torch.Tensor, options: dict[str, Any],
    ) -> None:  # fmt: skip
        steps = [step] * len(params)
        with in_float32(*states) as moments:
            flag = _beside(noop_flag, params)
            self._op.multi_tensor_adam_step(params, grads, *moments, steps, noop_flag=flag, **options)


class FusedAdamOnCpuModule(FusedAdamModule):
    """The module ``fused_adam`` on the CPU, with the op ``cpu_adam``."""

    def _step(
        self, params: Sequence[torch.Tensor], grads: Sequence[torch.Tensor], *states: Sequence[torch.Tensor], step: int,
        noop_flag: torch.Tensor, options: dict[str, Any],
    ) -> None:  # fmt: skip
        if noop_flag.numel() != 1:
            msg = (
                f"multi_tensor_adam failed: got noop_flag of shape {tuple(noop_flag.shape)}; expected one number. "
                f"Fix: pass torch.zeros(1, dtype=torch.int32)."
            )
            raise RuntimeError(msg)
        if noop_flag.item() == 0:
            state_steps = torch.full((len(params),), float(step - 1), dtype=torch.float32, device="cpu").unbind()
            self._op.adam_step(params, grads, *states, state_steps, **options)


class FusedLionModule:
    """The module ``fused_lion``; a parameter whose interpolated momentum is 0 does not change, as in the paper."""

    def __init__(self, op: LionFunctions) -> None:
        self._op = op

    def multi_tensor_lion(
        self, chunk_size: int, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]], lr: float,
        beta1: float, beta2: float, step: int, weight_decay: float,
    ) -> None:  # fmt: skip
        """Take a step of every parameter, in place; ``chunk_size`` and ``step`` are ignored.

        Args:
            chunk_size: ignored.
            noop_flag: one int32 on the parameters' device; if it is not zero, nothing is done.
            tensor_lists: gradients, parameters, momenta; lists of equal length, with the same sizes at each position;
                float32, bfloat16 or float16.
            lr: the learning rate.
            beta1: the interpolation factor.
            beta2: the decay of the momentum.
            step: ignored.
            weight_decay: the decay of the parameter.

        Raises:
            ValueError: when there are not three lists.
            NotImplementedError: when a parameter is float64.
            RuntimeError: naming the argument, before anything is written.
        """
        _check("multi_tensor_lion", tensor_lists, 3)
        grads, params, states = tensor_lists
        refuse_float64("multi_tensor_lion", params)
        with in_float32(states) as (exp_avgs,):
            in_shapes_of(
                self._op.lion_step, params, grads, exp_avgs, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay,
                noop_flag=_beside(noop_flag, params),
            )  # fmt: skip


class CPULionModule:
    """The module ``cpu_lion``.

    Arguments of its functions: ``optimizer_id`` and ``step`` are ignored. ``lr`` is the learning rate, ``beta1`` the
    interpolation factor, ``beta2`` the decay of the momentum ``exp_avg``, ``weight_decay`` the decay of the parameter.
    ``should_log`` is ignored.
    """

    def __init__(self, op: LionFunctions) -> None:
        self._op = op

    def create_lion(
        self, optimizer_id: int, lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, weight_decay: float = 0.0,
        should_log: bool = False,
    ) -> int:  # fmt: skip
        """Create an optimizer. There is nothing to store, as every update passes its options.

        Args:
            optimizer_id: any number; ignored, like all arguments.
            lr: ignored.
            beta1: ignored.
            beta2: ignored.
            weight_decay: ignored.
            should_log: ignored.

        Returns:
            0, like deepspeed's function.
        """
        return 0

    def destroy_lion(self, optimizer_id: int) -> int:
        """Do nothing, as nothing is stored.

        Args:
            optimizer_id: the number of an optimizer; ignored.

        Returns:
            0, like deepspeed's function.
        """
        return 0

    def lion_update(
        self, optimizer_id: int, step: int, lr: float, beta1: float, beta2: float, weight_decay: float,
        param: torch.Tensor, grad: torch.Tensor, exp_avg: torch.Tensor,
    ) -> int:  # fmt: skip
        """Take a step of one parameter, in place.

        Args:
            optimizer_id: ignored, as is ``step``.
            step: see ``optimizer_id``.
            lr: the learning rate.
            beta1: the interpolation factor.
            beta2: the decay of the momentum.
            weight_decay: the decay of the parameter.
            param: float32, bfloat16 or float16, on the CPU; written.
            grad: like ``param``.
            exp_avg: the momentum, with param's number of elements; written.

        Returns:
            0.

        Raises:
            RuntimeError: naming the argument, before anything is written.
        """
        with in_float32([exp_avg]) as (exp_avgs,):
            options = {"lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay}
            in_shapes_of(self._op.lion_step, [param], [grad], exp_avgs, **options)
        return 0


class CPUAdagradModule:
    """The module ``cpu_adagrad``.

    Arguments of its functions: ``optimizer_id`` and ``should_log`` are ignored. ``lr`` is the learning rate, ``eps`` is
    added to the root of the sum of squares, and ``weight_decay`` is the decay of the parameter.
    """

    def __init__(self, op: AdagradFunctions) -> None:
        self._op = op

    def create_adagrad(
        self,
        optimizer_id: int,
        lr: float = 1e-2,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        should_log: bool = False,
    ) -> int:
        """Create an optimizer. There is nothing to store, as every update passes its options.

        Args:
            optimizer_id: any number; ignored, like all arguments.
            lr: ignored.
            eps: ignored.
            weight_decay: ignored.
            should_log: ignored.

        Returns:
            0, like deepspeed's function.
        """
        return 0

    def destroy_adagrad(self, optimizer_id: int) -> int:
        """Do nothing, as nothing is stored.

        Args:
            optimizer_id: the number of an optimizer; ignored.

        Returns:
            0, like deepspeed's function.
        """
        return 0

    def adagrad_update(
        self, optimizer_id: int, step: int, lr: float, eps: float, weight_decay: float, param: torch.Tensor,
        grad: torch.Tensor, exp_avg_sq: torch.Tensor,
    ) -> int:  # fmt: skip
        """Take a step of one parameter, in place; the gradient is unchanged.

        Args:
            optimizer_id: ignored, as is ``step``.
            step: see ``optimizer_id``.
            lr: the learning rate.
            eps: added to the root of the sum of squares.
            weight_decay: the decay of the parameter.
            param: float32, bfloat16 or float16, on the CPU; written.
            grad: like ``param``.
            exp_avg_sq: the sum of squares, with param's number of elements; written.

        Returns:
            0.

        Raises:
            RuntimeError: naming the argument, before anything is written.
        """
        with in_float32([exp_avg_sq]) as (exp_avg_sqs,):
            in_shapes_of(self._op.adagrad_step, [param], [grad], exp_avg_sqs, lr=lr, eps=eps, weight_decay=weight_decay)
        return 0


def _beside(noop_flag: torch.Tensor, params: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the flag on the parameters' device: deepspeed makes one on the current device, for parameters on any."""
    return noop_flag.to(params[0].device) if params else noop_flag


def refuse_float64(function: str, params: Sequence[torch.Tensor]) -> None:
    """Raise the error for which deepspeed's own op is used, which takes float64."""
    if any(tensor.dtype == torch.float64 for tensor in params):
        msg = f"{function} failed: got float64; expected float32, bfloat16 or float16. Fix: use an optimizer of torch.optim."
        raise NotImplementedError(msg)


def _check(function: str, lists: Sequence[Any], expected: int, mode: int = 0) -> None:
    if len(lists) != expected or mode not in (0, 1):
        msg = (
            f"{function} failed: got {len(lists)} lists and mode {mode}; expected {expected} lists and mode 0 or 1. "
            f"Fix: pass the lists in the order of deepspeed's FusedAdam; mode=1 is AdamW, mode=0 Adam with L2."
        )
        raise ValueError(msg)
