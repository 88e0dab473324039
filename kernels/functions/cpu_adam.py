"""The functions of the op ``cpu_adam``: a multi-tensor step, and deepspeed 0.19.8's functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.utils import _pytree as pytree

from .outputs import in_shapes_of
from .registration import OpFunctions, mark_changed, nothing
from .zenflow_adam import ZenFlowAdam

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["CPUAdamFunctions"]


def _call(op: Callable[..., None], arguments: tuple[Any, ...], **options: Any) -> None:
    """Call an op, and raise a readable error for tensors that the dispatcher has no kernel for."""
    try:
        op(*arguments, **options)
    except NotImplementedError:
        raise _refusal(_tensors(arguments)) from None


def _tensors(arguments: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]


def _refusal(tensors: Sequence[torch.Tensor]) -> RuntimeError:
    kinds = sorted({f"{type(tensor).__name__}, {tensor.layout} on {tensor.device}" for tensor in tensors})
    return RuntimeError(
        f"adam failed: got tensors that are {'; '.join(kinds)}; expected plain torch.strided tensors on cpu. "
        f"Fix: move them to the cpu; for sparse gradients use torch.optim.SparseAdam."
    )


class CPUAdamFunctions(ZenFlowAdam, OpFunctions):
    """The functions of the loaded op; tensors are float32, bfloat16 or float16, states float32 or of the parameter's dtype."""

    OPS: ClassVar = {"adam_step": (nothing,), "adam_update": (nothing,), "adam_rollback": (nothing,)}
    LATER = ("adam_update", "adam_rollback")
    _decoupled: dict[int, bool] = {}  # noqa: RUF012  # deepspeed's optimizers share one table of ids per process

    def adam_step(
        self,
        params: Sequence[torch.Tensor],
        grads: Sequence[torch.Tensor],
        exp_avgs: Sequence[torch.Tensor],
        exp_avg_sqs: Sequence[torch.Tensor],
        state_steps: Sequence[torch.Tensor],
        *,
        lr: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        weight_decay: float = 0.0,
        eps: float = 1e-8,
        adamw_mode: bool = True,
        bias_correction: bool = True,
        maximize: bool = False,
    ) -> None:
        """Take one step of every parameter, in place.

        Args:
            params: the parameters, any shapes.
            grads: their gradients, of the same shapes.
            exp_avgs: the first moments, of the same shapes; with ``exp_avg_sqs`` float32, or of the parameter's dtype.
            exp_avg_sqs: the second moments, like ``exp_avgs``.
            state_steps: one-element float tensors, the number of steps so far; each is increased by one.
            lr: the learning rate.
            beta1: the decay of the first moment.
            beta2: the decay of the second moment.
            weight_decay: the decay of the parameter.
            eps: added to the root of the second moment.
            adamw_mode: decay the parameter itself (AdamW) rather than add to the gradient (Adam).
            bias_correction: correct the moments for their start at zero.
            maximize: step along the gradient instead of against it.

        Raises:
            RuntimeError: naming the argument, before anything is written, when shapes, dtypes or devices do not fit.

        Source: tests/ops/adam_reference.py
        """
        if not (params or grads or exp_avgs or exp_avg_sqs or state_steps):
            return  # without a tensor, the dispatcher could not choose a device
        _call(
            self._adam_step, (params, grads, exp_avgs, exp_avg_sqs, state_steps), lr=lr, beta1=beta1, beta2=beta2,
            weight_decay=weight_decay, eps=eps, decoupled=adamw_mode, bias_correction=bias_correction,
            maximize=maximize,
        )  # fmt: skip
        mark_changed(params)

    def create_adam(
        self, optimizer_id: int, lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
        weight_decay: float = 0.0, adamw_mode: bool = True, should_log: bool = False,
    ) -> int:  # fmt: skip
        """Create an optimizer for :meth:`adam_update`, as deepspeed's Python code does before it steps.

        Args:
            optimizer_id: any number; an existing optimizer with this number is replaced.
            lr: ignored, like all but ``adamw_mode``: each update passes its own.
            beta1: ignored.
            beta2: ignored.
            eps: ignored.
            weight_decay: ignored.
            adamw_mode: decay the parameter itself (AdamW) rather than add to the gradient (Adam).
            should_log: ignored.

        Returns:
            0, like deepspeed's function.
        """
        self._decoupled[optimizer_id] = bool(adamw_mode)
        return 0

    def destroy_adam(self, optimizer_id: int) -> int:
        """Destroy an optimizer; does nothing if it does not exist.

        Args:
            optimizer_id: the number passed to :meth:`create_adam`.

        Returns:
            0, like deepspeed's function.
        """
        self._decoupled.pop(optimizer_id, None)
        return 0

    def adam_update(
        self, optimizer_id: int, step: int, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
        bias_correction: bool, param: torch.Tensor, grad: torch.Tensor, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor,
    ) -> int:  # fmt: skip
        """Take one step of one parameter, in place.

        Args:
            optimizer_id: the number passed to :meth:`create_adam`.
            step: the number of the step, counted from 1.
            lr: the learning rate.
            beta1: the decay of the first moment.
            beta2: the decay of the second moment.
            eps: added to the root of the second moment.
            weight_decay: the decay of the parameter.
            bias_correction: correct the moments for their start at zero.
            param: float32, bfloat16 or float16, on the CPU.
            grad: its gradient, of the same size.
            exp_avg: the first moment, of the same size; with ``exp_avg_sq`` float32, or of the parameter's dtype.
            exp_avg_sq: the second moment, like ``exp_avg``.

        Returns:
            0, like deepspeed's function.

        Raises:
            KeyError: when the optimizer does not exist.
            RuntimeError: naming the argument, before anything is written.
        """
        betas_and_decay = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
        tensors = param, grad, exp_avg, exp_avg_sq
        return self._step_one("adam_update", optimizer_id, tensors, step, bias_correction, betas_and_decay)

    def adam_rollback(
        self, optimizer_id: int, step: int, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
        bias_correction: bool, param: torch.Tensor, grad: torch.Tensor, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor,
    ) -> int:  # fmt: skip
        """Revert one step of one parameter, in place.

        Args:
            optimizer_id: the number passed to :meth:`create_adam`.
            step: the number of the step, counted from 1.
            lr: the learning rate.
            beta1: the decay of the first moment.
            beta2: the decay of the second moment.
            eps: added to the root of the second moment.
            weight_decay: the decay of the parameter.
            bias_correction: correct the moments for their start at zero.
            param: float32, bfloat16 or float16, on the CPU.
            grad: the gradient of the step, of the same size.
            exp_avg: the first moment, of the same size; with ``exp_avg_sq`` float32, or of the parameter's dtype.
            exp_avg_sq: the second moment, like ``exp_avg``.

        Returns:
            0, like deepspeed's function.

        Raises:
            KeyError: when the optimizer does not exist.
            RuntimeError: naming the argument, before anything is written.
        """
        betas_and_decay = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
        tensors = param, grad, exp_avg, exp_avg_sq
        return self._step_one("adam_rollback", optimizer_id, tensors, step, bias_correction, betas_and_decay)

    def _step_one(
        self, op: str, optimizer_id: int, tensors: tuple[torch.Tensor, ...], step: int, bias_correction: bool,
        options: dict[str, float],
    ) -> int:  # fmt: skip
        if optimizer_id not in self._decoupled:
            msg = (
                f"{op} failed: got optimizer {optimizer_id}; expected one of {sorted(self._decoupled)}. "
                f"Fix: call create_adam({optimizer_id}, …) first."
            )
            raise KeyError(msg)
        options = {**options, "decoupled": self._decoupled[optimizer_id], "bias_correction": bool(bias_correction)}
        function = getattr(self._ops, op).default

        def call(*lists: Sequence[torch.Tensor]) -> None:
            _call(function, (*(tensor for (tensor,) in lists), step), **options)

        in_shapes_of(call, *([tensor] for tensor in tensors))
        mark_changed(tensors[:1])
        return 0
