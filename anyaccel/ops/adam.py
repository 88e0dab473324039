"""``CPUAdam``: AdamW (or Adam) for parameters in host memory, updated in one pass of a compiled kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import Optimizer

from .gradients import resolve
from .loading import loaded
from .saved_states import settle, taken_over
from .sharded import mark_sharded, shards_of_lists

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim.optimizer import ParamsT

__all__ = ["CPUAdam"]

_MOMENTS = ("exp_avg", "exp_avg_sq")


class CPUAdam(Optimizer):
    """AdamW (or Adam) for parameters in host memory; updates a whole group in one pass of a compiled kernel.

    With ``m = beta1 * m + (1 - beta1) * grad`` and ``v = beta2 * v + (1 - beta2) * grad ** 2``, both divided by
    ``1 - beta ** step`` where they are used, a step is ``param -= lr * (weight_decay * param + m / (sqrt(v) + eps))``. It takes
    the arguments of ``torch.optim.AdamW`` and keeps its state dict's layout: a state dict of either loads into the other. The
    kernel is compiled on first use.

    Args:
        params: parameters or groups of them, as for any torch optimizer; float32, bfloat16 or float16, of any shape and
            strides, on the CPU, with dense gradients. ``DTensor`` shards work too.
        lr: the learning rate, 0 or more; a number or a tensor of one.
        betas: the decay rates of the first and the second moment, each in ``[0, 1)``.
        eps: added to the root of the second moment, 0 or more.
        weight_decay: the decay of the parameters, 0 or more.
        amsgrad: must be False.
        maximize: step along the gradient instead of against it.
        foreach: None or False.
        capturable: must be False.
        differentiable: must be False.
        fused: any value; it changes nothing.
        adamw_mode: decay the parameters themselves (AdamW); otherwise add ``weight_decay * param`` to the gradients (Adam).
        bias_correction: divide the moments by ``1 - beta ** step``, which corrects for their start at zero.
        fp32_optimizer_states: keep float32 moments whatever the parameters' dtype; otherwise the parameters' dtype.

    Raises:
        ValueError: if an option is out of its range or not supported, or, from ``step``, a parameter is not on the CPU.
        RuntimeError: from ``step``, if a dtype is not supported or a gradient is sparse.
        OpError: from the first ``step``, if the kernel cannot be built or loaded on this machine.

    Source: Loshchilov & Hutter, arXiv:1711.05101; tests/ops/adam_reference.py

    Example:
        >>> parameter = torch.nn.Parameter(torch.ones(2))
        >>> optimizer, parameter.grad = CPUAdam([parameter], lr=0.5, weight_decay=0.0), torch.tensor([1.0, -1.0])
        >>> optimizer.step(), parameter.tolist()
        (None, [0.5, 1.5])
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        adamw_mode: bool = True,
        bias_correction: bool = True,
        fp32_optimizer_states: bool = True,
    ) -> None:
        self.bias_correction = bias_correction
        self.fp32_optimizer_states = fp32_optimizer_states
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": adamw_mode,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters.

        Args:
            param_group: ``params`` and the options that differ from the defaults.

        Raises:
            ValueError: if an option is out of its range or not supported.
        """
        _check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def __getstate__(self) -> dict[str, Any]:
        own = {"bias_correction": self.bias_correction, "fp32_optimizer_states": self.fp32_optimizer_states}
        return {**super().__getstate__(), **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for key, value in self.defaults.items():
                group.setdefault(key, value)
            group["foreach"] = None  # it changes no result
            _check_options(group)
        settle(self)
        for kept in self.state.values():
            if isinstance(kept, dict) and "step" in kept:  # a parameter without a gradient may have an empty state
                # a copy, because the original optimizer keeps counting with its own tensor
                kept["step"] = torch.as_tensor(kept["step"], dtype=torch.float32, device="cpu").clone()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state dict of this class, of ``torch.optim.AdamW`` or of deepspeed's ``DeepSpeedCPUAdam`` or ``FusedAdam``.

        Args:
            state_dict: what ``state_dict()`` of one of them returned; its tensors are copied.

        Raises:
            ValueError: for an option that this class does not take; nothing is loaded then.
        """
        with taken_over(self, state_dict, (*_MOMENTS, "step"), _check_options_of_state, self._taken) as prepared:
            super().load_state_dict(prepared)

    def _taken(self, param: torch.Tensor, group: dict[str, Any], key: str, value: Any) -> Any:
        """Return a copy of a saved state, as this class keeps it."""
        if key == "step":
            return torch.as_tensor(value, dtype=torch.float32, device="cpu").reshape(()).clone()
        is_tensor = isinstance(value, torch.Tensor)
        return value.detach().to("cpu", self._moment_dtype(param), copy=True) if is_tensor else value

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step. Parameters without a gradient are skipped.

        Args:
            closure: evaluates the model again and returns the loss.

        Returns:
            What the closure returned, or None.

        Raises:
            ValueError: if a parameter is not on the CPU.
            RuntimeError: if a dtype is not supported or a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        params = group["params"]
        grads = [param.grad for param in params if param.grad is not None]
        if not grads:
            return
        if len(grads) < len(params):
            params = [param for param in params if param.grad is not None]
        states = [self.state.get(param) or self._new_state(param) for param in params]
        beta1, beta2 = group["betas"]
        options = {
            "lr": float(group["lr"]),
            "beta1": float(beta1),
            "beta2": float(beta2),
            "weight_decay": group["weight_decay"],
            "eps": group["eps"],
            "adamw_mode": group["decoupled_weight_decay"],
            "bias_correction": group.get("bias_correction", self.bias_correction),  # deepspeed's groups have it
            "maximize": group["maximize"],
        }
        moments = [[state[key] for state in states] for key in _MOMENTS]
        steps, step = [state["step"] for state in states], loaded("cpu_adam").adam_step
        try:
            step(*shards_of_lists([params, grads, *moments]), steps, **options)
        except RuntimeError:
            if not resolve(grads):
                raise
            step(*shards_of_lists([params, grads, *moments]), steps, **options)
        mark_sharded(params)

    def _new_state(self, param: torch.Tensor) -> dict[str, torch.Tensor]:
        if param.device.type != "cpu":
            msg = (
                f"step failed: got a parameter on {param.device}; expected the cpu. "
                f"Fix: keep a master copy in host memory, or use torch.optim.AdamW."
            )
            raise ValueError(msg)
        state: dict[str, torch.Tensor] = self.state[param]
        state["step"] = torch.zeros((), dtype=torch.float32, device="cpu")  # whatever torch's default device
        for key in _MOMENTS:
            state[key] = torch.zeros_like(param, dtype=self._moment_dtype(param), memory_format=torch.preserve_format)
        return state

    def _moment_dtype(self, param: torch.Tensor) -> torch.dtype:
        return torch.float32 if self.fp32_optimizer_states else param.dtype


def _check_options(options: dict[str, Any]) -> None:
    for unsupported in ("amsgrad", "foreach", "capturable", "differentiable"):
        if options.get(unsupported):
            raise _refusal(unsupported, True, "False", "leave it out, or use torch.optim.AdamW")
    for name in ("lr", "eps", "weight_decay"):
        if not float(options[name]) >= 0.0:
            raise _refusal(name, options[name], "a number of 0 or more", f"leave {name} out for its default")
    betas = options["betas"]
    if len(betas) != 2 or not all(0.0 <= float(beta) < 1.0 for beta in betas):
        raise _refusal("betas", betas, "two numbers in [0, 1)", "pass betas=(0.9, 0.999)")


def _check_options_of_state(options: dict[str, Any]) -> None:
    _check_options({**options, "foreach": None})


def _refusal(name: str, got: Any, expected: str, fix: str) -> ValueError:
    return ValueError(f"CPUAdam failed: got {name}={got}; expected {expected}. Fix: {fix}.")
