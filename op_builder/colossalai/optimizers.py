"""Colossal-AI's optimizer modules, with its class, function and argument names, on this project's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...kernels.functions.outputs import in_float32, in_shapes_of, require_apart, require_one_place_each, shaped_like
from .module import ColossalAIModule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...kernels.functions.cpu_adam import CPUAdamFunctions
    from ...kernels.functions.multi_tensor import MultiTensorFunctions
    from ...kernels.functions.optimizers import MultiTensorAdamFunctions, SGDFunctions

__all__ = ["CPUAdamModule", "FusedOptimizerModule"]


class CPUAdamOptimizer:
    """Adam for parameters in host memory; the arguments of :meth:`step` replace those given here, except ``adamw_mode``.

    Args:
        functions: the functions of the op ``cpu_adam``.
        alpha: the learning rate.
        betta1: the decay of the first moment.
        eps: added to the square root of the second moment.
        eps: added to the root of the second moment.
        weight_decay: the decay of the parameter.
        adamw_mode: decay the parameter itself (AdamW) rather than add to the gradient (Adam).
    """

    def __init__(
        self, functions: CPUAdamFunctions, alpha: float = 1e-3, betta1: float = 0.9, betta2: float = 0.999,
        eps: float = 1e-8, weight_decay: float = 0.0, adamw_mode: bool = True,
    ) -> None:  # fmt: skip
        self._functions, self._adamw_mode = functions, adamw_mode

    def step(
        self, step: int, lr: float, beta1: float, beta2: float, epsilon: float, weight_decay: float,
        bias_correction: bool, params: torch.Tensor, grads: torch.Tensor, exp_avg: torch.Tensor,
        exp_avg_sq: torch.Tensor, loss_scale: float,
    ) -> None:  # fmt: skip
        """Take step number ``step`` (counted from 1) of one parameter, in place.

        Args:
            step: the number of the step.
            lr: the learning rate.
            beta1: the decay of the first moment.
            beta2: the decay of the second moment.
            epsilon: added to the root of the second moment.
            weight_decay: the decay of the parameter.
            bias_correction: correct the moments for their start at zero.
            params: the parameter.
            grads: its gradient.
            exp_avg: the first moment; it and the second are float32, or have the parameter's dtype.
            exp_avg_sq: the second moment.
            loss_scale: the gradient is divided by it if it is above 0.

        Raises:
            RuntimeError: naming the argument, before anything is written.
        """
        taken = grads.float() / loss_scale if loss_scale > 0 else grads
        taken_before = [torch.tensor(float(step - 1), dtype=torch.float32, device="cpu")]
        in_shapes_of(
            lambda p, g, m, v, **options: self._functions.adam_step(p, g, m, v, taken_before, **options),
            [params], [taken], [exp_avg], [exp_avg_sq], lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay,
            eps=epsilon, adamw_mode=self._adamw_mode, bias_correction=bool(bias_correction),
        )  # fmt: skip


class CPUAdamModule(ColossalAIModule):
    """The module ``cpu_adam``."""

    def CPUAdamOptimizer(  # noqa: N802  # their class
        self, alpha: float = 1e-3, betta1: float = 0.9, betta2: float = 0.999, eps: float = 1e-8,
        weight_decay: float = 0.0, adamw_mode: bool = True,
    ) -> CPUAdamOptimizer:  # fmt: skip
        """Return an optimizer; each ``step`` passes all options again, except ``adamw_mode``."""
        return CPUAdamOptimizer(self._functions, alpha, betta1, betta2, eps, weight_decay, adamw_mode)  # type: ignore[arg-type]


class FusedOptimizerModule:
    """The module ``fused_optim``: apex's functions.

    ``chunk_size`` is ignored: the work is split evenly. The steps of SGD and Adam do nothing if ``noop_flag`` is not 0.

    Args:
        adam: the functions of the op ``multi_tensor_adam``.
        sgd: the functions of the op ``sgd``.
        many: the functions of the op ``multi_tensor``.
    """

    def __init__(self, adam: MultiTensorAdamFunctions, sgd: SGDFunctions, many: MultiTensorFunctions) -> None:
        self._adam, self._sgd, self._many = adam, sgd, many

    def multi_tensor_scale(
        self, chunk_size: int, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]], scale: float
    ) -> None:
        """Write the tensors of the first list, times ``scale``, to the second list; sets the flag to 1 on a non-finite value.

        Raises:
            ValueError: when there are not two lists.
            RuntimeError: naming the argument, before anything is written.
        """
        inputs, outputs = _lists("multi_tensor_scale", tensor_lists, 2)
        in_shapes_of(lambda out, given: self._many.scale(given, out, scale, noop_flag), outputs, inputs)

    def multi_tensor_l2norm(
        self, chunk_size: int, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]],
        per_tensor: bool | None = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Return the norm of all tensors of the list together, float32 ``(1,)``, and if ``per_tensor`` also that of each.

        Raises:
            ValueError: when there is not one list.
            RuntimeError: when the list is empty, or a tensor does not fit the others.
        """
        (tensors,) = _lists("multi_tensor_l2norm", tensor_lists, 1)
        total, norms = self._many.l2norm(tensors)
        return total, norms if per_tensor else norms.new_empty(0)

    def multi_tensor_adam(
        self, chunk_size: int, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]], lr: float,
        beta1: float, beta2: float, epsilon: float, step: int, mode: int, bias_correction: int, weight_decay: float,
        div_scale: float = -1.0,
    ) -> None:  # fmt: skip
        """Take step number ``step`` (counted from 1) of every parameter, in place.

        Args:
            chunk_size: see the class.
            noop_flag: one int32 on the device.
            tensor_lists: gradients, parameters, first and second moments.
            lr: the learning rate.
            beta1: the decay of the first moment.
            beta2: the decay of the second moment.
            epsilon: added to the root of the second moment.
            step: the number of this step.
            mode: 0 adds the decay to the gradient (Adam), 1 decays the parameter itself (AdamW).
            bias_correction: 1 corrects the moments for their start at zero.
            weight_decay: the decay of the parameter.
            div_scale: gradients are divided by it if it is above 0.

        Raises:
            ValueError: when there are not four lists.
            RuntimeError: naming the argument, before anything is written.
        """
        grads, params, *states = _lists("multi_tensor_adam", tensor_lists, 4)
        with in_float32(*states) as (exp_avgs, exp_avg_sqs):
            in_shapes_of(
                lambda p, g, m, v, **options: self._adam.multi_tensor_adam_step(p, g, m, v, [step] * len(p), **options),
                params, grads, exp_avgs, exp_avg_sqs, lr=lr, beta1=beta1, beta2=beta2, eps=epsilon,
                weight_decay=weight_decay, adamw_mode=mode == 1, bias_correction=bias_correction == 1,
                noop_flag=noop_flag, grad_scale=_divisor(noop_flag, div_scale) if div_scale > 0 else None,
            )  # fmt: skip

    def multi_tensor_sgd(
        self, chunk_size: int, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]], wd: float,
        momentum: float, dampening: float, lr: float, nesterov: bool, first_run: bool, wd_after_momentum: bool,
        scale: float,
    ) -> None:  # fmt: skip
        """Take one step of every parameter, in place.

        Args:
            chunk_size: see the class.
            noop_flag: one int32 on the device.
            tensor_lists: gradients, parameters, momenta.
            wd: the decay of the parameter.
            momentum: the momentum factor.
            dampening: the dampening of the gradient in the momentum.
            lr: the learning rate.
            nesterov: use Nesterov momentum.
            first_run: set the momenta to the gradients.
            wd_after_momentum: do not add the decay to the momentum.
            scale: gradients are multiplied by it.

        Raises:
            ValueError: when there are not three lists.
            RuntimeError: naming the argument, before anything is written.
        """
        grads, params, buffers = _lists("multi_tensor_sgd", tensor_lists, 3)
        if wd_after_momentum and wd:
            _require_writable("multi_tensor_sgd", params=params, momenta=buffers)
        kept = [torch.zeros_like(buffer) for buffer in buffers] if momentum == 0 else buffers  # kept, as theirs are
        decayed = [param.detach() * (1 - lr * wd) for param in params] if wd_after_momentum and wd else params
        divisor = _divisor(noop_flag, 1.0 / scale if scale else float("inf")) if scale != 1 else None  # of any sign
        with in_float32(kept) as (momenta,):
            in_shapes_of(
                self._sgd.sgd_step, decayed, grads, momenta, lr=lr, momentum=momentum, dampening=dampening,
                weight_decay=0.0 if wd_after_momentum else wd, nesterov=nesterov, first_step=first_run,
                noop_flag=noop_flag, grad_scale=divisor,
            )  # fmt: skip
        if decayed is params:
            return
        with torch.no_grad():
            for param, result in zip(params, decayed, strict=True):
                param.copy_(torch.where(noop_flag.reshape(()) != 0, param, result))

    def multi_tensor_lamb(
        self, chunk_size: int, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]], lr: float,
        beta1: float, beta2: float, epsilon: float, step: int, bias_correction: int, weight_decay: float,
        grad_averaging: int, mode: int, global_grad_norm: torch.Tensor, max_grad_norm: float,
        use_nvlamb: bool | None = False,
    ) -> None:  # fmt: skip
        """Take step number ``step`` (counted from 1) of every parameter, in place, by torch operators on lists of tensors.

        Gradients are unchanged; in Colossal-AI they hold the updates afterwards. An overflow reaches the parameters, as there.

        Args:
            chunk_size: see the class.
            noop_flag: ignored, as in Colossal-AI.
            tensor_lists: gradients, parameters, first and second moments.
            lr: the learning rate.
            beta1: the decay of the first moment.
            beta2: the decay of the second moment.
            epsilon: added to the root of the second moment.
            step: the number of this step.
            bias_correction: 1 corrects the moments for their start at zero.
            weight_decay: the decay of the parameter.
            grad_averaging: 1 weighs the gradient in the first moment by ``1 - beta1``, anything else by 1.
            mode: 0 adds the decay to the gradient, 1 adds it to the update.
            global_grad_norm: float32 ``(1,)``, the norm of all gradients.
            max_grad_norm: gradients are scaled down to this norm.
            use_nvlamb: adapt the learning rate of parameters without decay as well.

        Raises:
            ValueError: when there are not four lists, or the step is below 1.
            RuntimeError: naming the argument, before anything is written.

        Source: apex's multi_tensor_lamb; tests/op_builder/test_colossalai_functions.py
        """
        given, params, *moments_given = _lists("multi_tensor_lamb", tensor_lists, 4)
        grads, *states = (shaped_like(params, tensors) for tensors in (given, *moments_given))
        _require_step_of_lamb(step, global_grad_norm, params, grads, *states)
        if not params:
            return
        options = {"wd": weight_decay, "is_averaged": grad_averaging == 1, "is_decoupled": mode == 1, "eps": epsilon}
        corrections = (1 - beta1**step, 1 - beta2**step) if bias_correction == 1 else (1.0, 1.0)
        with torch.no_grad(), in_float32(list(params), *states) as (weights, *moments):
            norm = global_grad_norm.float().reshape(())
            clip = torch.where(norm > max_grad_norm, norm / max_grad_norm, 1.0)
            scaled = [grad.float() / clip for grad in grads]
            updates = _lamb_updates(weights, scaled, moments, (beta1, beta2), corrections, options)
            if use_nvlamb or weight_decay:
                norms = zip(torch._foreach_norm(weights), torch._foreach_norm(updates), strict=True)
                torch._foreach_mul_(updates, [_ratio(*of_both) for of_both in norms])
            torch._foreach_add_(weights, updates, alpha=-lr)


def _lamb_updates(
    weights: list[torch.Tensor], grads: list[torch.Tensor], moments: list[list[torch.Tensor]],
    betas: tuple[float, float], corrections: tuple[float, float], options: dict[str, Any],
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Update the moments in place, and return the updates before LAMB scales them; overwrites the gradients."""
    exp_avgs, exp_avg_sqs = moments
    decays_gradient = options["wd"] and not options["is_decoupled"]
    if decays_gradient:
        torch._foreach_add_(grads, weights, alpha=options["wd"])
    torch._foreach_mul_(exp_avgs, betas[0])
    torch._foreach_add_(exp_avgs, grads, alpha=1 - betas[0] if options["is_averaged"] else 1.0)
    torch._foreach_mul_(exp_avg_sqs, betas[1])
    torch._foreach_addcmul_(exp_avg_sqs, grads, grads, value=1 - betas[1])
    roots = torch._foreach_sqrt(torch._foreach_div(exp_avg_sqs, corrections[1]))
    torch._foreach_add_(roots, options["eps"])
    updates: tuple[torch.Tensor, ...] = torch._foreach_div(torch._foreach_div(exp_avgs, corrections[0]), roots)
    if options["wd"] and not decays_gradient:
        torch._foreach_add_(updates, weights, alpha=options["wd"])
    return updates


def _ratio(of_param: torch.Tensor, of_update: torch.Tensor) -> torch.Tensor:
    return torch.where((of_param != 0) & (of_update != 0), of_param / of_update, 1.0)


def _divisor(flag: torch.Tensor, divisor: float) -> torch.Tensor:
    """Return the divisor of the gradients, on the flag's device."""
    return torch.full((1,), divisor, dtype=torch.float32, device=flag.device)


def _require_step_of_lamb(
    step: int, norm: torch.Tensor, params: Sequence[torch.Tensor], grads: Sequence[torch.Tensor],
    exp_avgs: Sequence[torch.Tensor], exp_avg_sqs: Sequence[torch.Tensor],
) -> None:  # fmt: skip
    function = "multi_tensor_lamb"
    _require_alike(function, params, grads=grads, exp_avgs=exp_avgs, exp_avg_sqs=exp_avg_sqs)
    _require_writable(function, params=params, exp_avgs=exp_avgs, exp_avg_sqs=exp_avg_sqs)
    if norm.numel() != 1:
        msg = (
            f"multi_tensor_lamb failed: got global_grad_norm of shape {tuple(norm.shape)}; expected one number. "
            f"Fix: pass the first result of multi_tensor_l2norm."
        )
        raise RuntimeError(msg)
    if step < 1:
        msg = f"{function} failed: got step {step}; expected 1 or more. Fix: count steps from 1."
        raise ValueError(msg)


def _require_alike(function: str, params: Sequence[torch.Tensor], **lists: Sequence[torch.Tensor]) -> None:
    """Check that tensors have the parameters' shapes and devices; torch's operators would broadcast."""
    for name, tensors in lists.items():
        for index, (param, tensor) in enumerate(zip(params, tensors, strict=True)):
            if (tensor.shape, tensor.device, tensor.layout) != (param.shape, param.device, torch.strided):
                msg = (
                    f"{function} failed: got {name}[{index}] of shape {tuple(tensor.shape)} on {tensor.device}; "
                    f"expected {tuple(param.shape)} on {param.device}, as params[{index}] is, and torch.strided, not "
                    f"{tensor.layout}. Fix: pass tensors of the same parameters."
                )
                raise RuntimeError(msg)


def _require_writable(function: str, **lists: Sequence[torch.Tensor]) -> None:
    """Check tensors that torch's operators write, where no kernel checks them."""
    for name, tensors in lists.items():
        for index, tensor in enumerate(tensors):
            require_one_place_each(function, tensor)
            if not tensor.is_floating_point() or tensor.layout is not torch.strided or tensor.is_neg():
                msg = (
                    f"{function} failed: got {name}[{index}] of {tensor.dtype}, {tensor.layout}, lazily negated: "
                    f"{tensor.is_neg()}; expected floats, torch.strided, not negated. Fix: pass plain tensors of the model."
                )
                raise RuntimeError(msg)
    require_apart(function, [tensor for tensors in lists.values() for tensor in tensors])


def _lists(function: str, lists: Sequence[Sequence[torch.Tensor]], expected: int) -> Sequence[Sequence[torch.Tensor]]:
    lengths = {len(tensors) for tensors in lists}
    if len(lists) != expected or len(lengths) > 1:
        msg = (
            f"{function} failed: got lists of {', '.join(str(len(tensors)) for tensors in lists) or 'nothing'}; expected "
            f"{expected} of the same length. Fix: pass one tensor in each list for every parameter."
        )
        raise ValueError(msg)
    return lists
