"""The base of the multi-tensor optimizers: one call per device and group, float32 states, torch's ``state_dict`` layout."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.optim.optimizer import Optimizer

from .gradients import resolve
from .loading import loaded
from .saved_states import settle, taken_over
from .sharded import are_sharded, mark_sharded, shards_of_lists

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.optim.optimizer import ParamsT

__all__ = ["MultiTensorOptimizer", "by_value", "refusal"]


class MultiTensorOptimizer(Optimizer, abc.ABC):
    """An optimizer whose step is one call for all parameters of a group on a device.

    Args:
        params: parameters or groups of them; float32, bfloat16 or float16, on any device with kernels.
        defaults: the options of groups that name none.

    Attributes:
        LOADER: of the kernels.
        STATES: the keys of the float32 states.
        COUNTS: whether steps are counted.
        SHARDS: whether a shard of a parameter can be stepped without the others.
    """

    LOADER: ClassVar[str]
    STATES: ClassVar[tuple[str, ...]]
    COUNTS: ClassVar[bool] = True
    SHARDS: ClassVar[bool] = True

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters.

        Raises:
            ValueError: for an option out of its range.
        """
        self._check({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def _check(self, options: dict[str, Any]) -> None:
        """Check a group's options.

        Raises:
            ValueError: for one out of its range.
        """
        for name in ("lr", "eps", "weight_decay", "momentum", "lr_decay"):
            if name in options and not float(options[name]) >= 0.0:
                raise refusal(self, name, options[name], "a number of 0 or more", f"leave {name} out for its default")
        betas = options.get("betas", (0.0, 0.0))
        if len(betas) != 2 or not all(0.0 <= float(beta) < 1.0 for beta in betas):
            raise refusal(self, "betas", betas, "two numbers in [0, 1)", "leave betas out for its default")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # state dicts of other classes lack some options
            for key, value in self.defaults.items():
                group.setdefault(key, value)
        settle(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state dict of this class, or of torch's or deepspeed's optimizer with the same formula.

        Raises:
            ValueError: for an option that this class does not take; nothing is loaded then.
        """
        with taken_over(self, state_dict, (*self.STATES, "step"), self._check, self._taken) as prepared:
            super().load_state_dict(prepared)

    def _taken(self, param: torch.Tensor, group: dict[str, Any], key: str, value: Any) -> Any:
        """Return a copy of a saved state, as this class keeps it."""
        if key == "step":
            device = _counting_device(group, param)
            return torch.as_tensor(value, dtype=torch.float32, device="cpu").reshape(()).to(device, copy=True)
        is_tensor = isinstance(value, torch.Tensor)
        return value.detach().to(param.device, torch.float32, copy=True) if is_tensor else value

    @torch.no_grad()
    def step(
        self, closure: Callable[[], Any] | None = None, *, noop_flag: torch.Tensor | None = None,
        grad_scale: torch.Tensor | None = None,
    ) -> Any:  # fmt: skip
        """Take one step.

        Args:
            closure: evaluates the model again and returns the loss.
            noop_flag: one int32 or float32 on the parameters' device; no parameter or state changes if it is not zero. The
                step is still counted, because the host does not wait for the flag; with ``capturable`` it is not. The
                first step is counted as such in any case, which matters for SGD with dampening.
            grad_scale: one float32 on the same device; gradients are divided by it.

        Returns:
            What the closure returned, or None.

        Raises:
            RuntimeError: while a graph is captured, before anything is written, if a group is not ``capturable``, as a replay
                would repeat the learning rate and the number of the step, which the host computes; or if no step was
                taken before, as a replay would initialise the states again.
            ValueError: if a group is ``capturable`` and its learning rate is a tensor on another device.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for params in _by_device([param for param in group["params"] if param.grad is not None]):
                self._step_on_device(group, params, {"noop_flag": noop_flag, "grad_scale": grad_scale})
        return loss

    def _step_on_device(self, group: dict[str, Any], params: list[torch.Tensor], control: dict[str, Any]) -> None:
        if not self.SHARDS and are_sharded(params):
            msg = (
                f"{type(self).__name__} failed: got sharded parameters (DTensor); expected whole ones, as it needs the norm of "
                f"each. Fix: use another optimizer, or DistributedDataParallel instead of FSDP."
            )
            raise RuntimeError(msg)
        _require_dense(self, params)
        device, is_capturable = params[0].device, bool(group.get("capturable"))
        first = self.STATES[0]
        kept = [self.state.get(param, {}) for param in params]
        fresh = [not isinstance(state.get(first), torch.Tensor) for state in kept]
        if _is_capturing(device):
            _require_replayable(self, device, is_capturable, any(fresh))
        common = {**control, **_learning_rate(self, group, device)}
        if any(fresh):
            kept = [
                self._first_state(param, group) if is_fresh else state
                for param, state, is_fresh in zip(params, kept, fresh, strict=True)
            ]
        steps = [0.0] * len(params)
        if self.COUNTS and not is_capturable:
            steps = torch.stack([state["step"] for state in kept]).add_(1.0).tolist()
        op = loaded(self.LOADER)
        for key, some in self._alike(steps, fresh):
            lists: list[list[Any]] = [[params[i] for i in some], [params[i].grad for i in some]]
            lists += [[kept[i][name] for i in some] for name in self.STATES]
            counters = [kept[i]["step"] for i in some] if self.COUNTS else []
            numbers = torch.stack(counters) if counters and is_capturable else [int(steps[i]) for i in some]
            flag = control["noop_flag"] if is_capturable else None
            _count(counters, flag, 1.0)  # first, as it may be refused
            try:
                self._run_with_shards(op, group, lists, numbers, key, common)
            except BaseException:
                _count(counters, flag, -1.0)
                raise
            mark_sharded(lists[0])
            self.state.update({params[i]: kept[i] for i in some if fresh[i]})

    def _run_with_shards(self, op: Any, group: dict[str, Any], lists: list[list[Any]], *arguments: Any) -> None:
        try:
            self._run(op, group, shards_of_lists(lists), *arguments)
        except RuntimeError:
            if not resolve(lists[1]):
                raise
            self._run(op, group, shards_of_lists(lists), *arguments)

    def _first_state(self, param: torch.Tensor, group: dict[str, Any]) -> dict[str, Any]:
        first = self._first_value(group)
        state = {
            key: torch.full_like(param, first, dtype=torch.float32, memory_format=torch.preserve_format)
            for key in self.STATES
        }
        if not self.COUNTS:
            return state
        return {"step": torch.zeros((), dtype=torch.float32, device=_counting_device(group, param)), **state}

    def _first_value(self, group: dict[str, Any]) -> float:
        """Return the states before the first step."""
        return 0.0

    def _alike(self, steps: list[float], fresh: list[bool]) -> list[tuple[Any, Sequence[int]]]:
        """Return the parameters that one call updates, and their common properties.

        Args:
            steps: the number of each parameter's step.
            fresh: whether it is the first.
        """
        return [(None, range(len(steps)))]

    @abc.abstractmethod
    def _run(
        self,
        op: Any,
        group: dict[str, Any],
        lists: list[list[Any]],
        steps: list[int] | torch.Tensor,
        key: Any,
        common: dict[str, Any],
    ) -> None:
        """Call the kernel.

        Args:
            op: the loader's functions.
            group: the options.
            lists: parameters, gradients, and each of the states.
            steps: the number of each parameter's step; with ``capturable`` a tensor of how many each has taken.
            key: what the parameters have in common.
            common: the learning rate, and the tensors that decide on the device.
        """


def by_value(values: Sequence[Any]) -> list[tuple[Any, Sequence[int]]]:
    """Return each value with its index."""
    found: dict[Any, list[int]] = {}
    for index, value in enumerate(values):
        found.setdefault(value, []).append(index)
    return list(found.items())


def refusal(optimizer: object, name: str, got: Any, expected: str, fix: str) -> ValueError:
    """Return the error for an option."""
    msg = f"{type(optimizer).__name__} failed: got {name}={got}; expected {expected}. Fix: {fix}."
    return ValueError(msg)


def _require_dense(optimizer: object, params: list[torch.Tensor]) -> None:
    layouts = {param.grad.layout for param in params if param.grad is not None}
    if layouts != {torch.strided}:
        got = ", ".join(sorted(map(str, layouts - {torch.strided})))
        msg = (
            f"{type(optimizer).__name__} failed: got gradients that are {got}; expected dense ones. "
            f"Fix: pass sparse=False to the embedding, or use torch.optim.SparseAdam for its parameters."
        )
        raise RuntimeError(msg)


def _is_capturing(device: torch.device) -> bool:
    asked = getattr(torch.get_device_module(device), "is_current_stream_capturing", None)
    return asked is not None and bool(asked())


def _require_replayable(optimizer: object, device: torch.device, is_capturable: bool, is_first: bool) -> None:
    if is_capturable and not is_first:
        return
    got, why, fix = (
        ("the first step of a parameter", "begin its states again", "take a step before the capture")
        if is_capturable
        else (
            "a step",
            "repeat this step's learning rate and number",
            "pass capturable=True, or call step() after the replay",
        )
    )
    msg = (
        f"{type(optimizer).__name__} failed: got {got} while {device} captures a graph; expected none, as each replay would "
        f"{why}. Fix: {fix}."
    )
    raise RuntimeError(msg)


def _learning_rate(optimizer: object, group: dict[str, Any], device: torch.device) -> dict[str, Any]:
    lr = group["lr"]
    if not (group.get("capturable") and isinstance(lr, torch.Tensor)):
        return {"lr": float(lr)}
    if lr.device != device:
        raise refusal(
            optimizer, "lr", f"a tensor on {lr.device}", f"a number or a tensor on {device}", f"pass lr.to('{device}')"
        )
    return {"lr": 0.0, "device_lr": lr.detach().to(torch.float32)}


def _counting_device(group: dict[str, Any], param: torch.Tensor) -> torch.device:
    return param.device if group.get("capturable") else torch.device("cpu")


def _count(counters: list[torch.Tensor], noop_flag: torch.Tensor | None, by: float) -> None:
    if not counters:
        return
    if noop_flag is None:
        torch._foreach_add_(counters, by)
    else:  # a list, because the host would read a single tensor
        torch._foreach_add_(counters, [(noop_flag.detach() == 0).to(torch.float32).reshape(()) * by] * len(counters))


def _by_device(params: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    found: dict[torch.device, list[torch.Tensor]] = {}
    for param in params:
        found.setdefault(param.device, []).append(param)
    return list(found.values())
