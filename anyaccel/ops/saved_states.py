"""Loads an optimizer's saved states as they are: torch would cast them to the dtype of their parameters."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from .foreign_states import with_own_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import torch
    from torch.optim.optimizer import Optimizer

__all__ = ["settle", "taken_over"]


class _Saved:
    """A state in which torch looks for no tensor."""

    def __init__(self, value: Any) -> None:
        self.value = value


@contextlib.contextmanager
def taken_over(
    optimizer: Optimizer,
    state_dict: dict[str, Any],
    keys: Collection[str],
    check: Callable[[dict[str, Any]], None],
    take: Callable[[torch.Tensor, dict[str, Any], str, Any], Any],
) -> Iterator[dict[str, Any]]:
    """Run a program's pre-hooks, check and convert what they return, and give it to torch's ``load_state_dict``.

    Whatever raises does so before the optimizer is changed. :func:`settle` finishes in ``__setstate__``, before the program's
    post-hooks.

    Args:
        optimizer: the optimizer.
        state_dict: what the program loads; it is not changed.
        keys: the states to convert.
        check: raises for options of a group that the optimizer does not take.
        take: returns a copy of a state, as the optimizer keeps it, from ``(parameter, group, key, value)``.
    """
    state_dict = state_dict.copy()
    hooks = optimizer._optimizer_load_state_dict_pre_hooks
    for hook in list(hooks.values()):
        returned = hook(optimizer, state_dict)
        state_dict = state_dict if returned is None else returned
    state_dict = with_own_steps(state_dict)
    states = dict(state_dict["state"])
    for own, saved in zip(optimizer.param_groups, state_dict["param_groups"], strict=False):
        options = {**optimizer.defaults, **saved}
        check(options)
        for param, saved_id in zip(own["params"], saved["params"], strict=False):
            if saved_id in states:
                states[saved_id] = {
                    key: _Saved(take(param, options, key, value)) if key in keys else value
                    for key, value in states[saved_id].items()
                }
    optimizer.__dict__[_HIDDEN] = hooks
    optimizer._optimizer_load_state_dict_pre_hooks = OrderedDict()  # these have run
    try:
        yield {**state_dict, "state": states}
    finally:
        _show_hooks(optimizer)


_HIDDEN = "_hidden_load_state_dict_pre_hooks"


def _show_hooks(optimizer: Optimizer) -> None:
    hooks = optimizer.__dict__.pop(_HIDDEN, None)
    if hooks is not None:
        optimizer._optimizer_load_state_dict_pre_hooks = hooks


def settle(optimizer: Optimizer) -> None:
    """Put in place what was taken over, if anything was."""
    _show_hooks(optimizer)
    for kept in optimizer.state.values():
        for key, value in kept.items() if isinstance(kept, dict) else ():
            if isinstance(value, _Saved):
                kept[key] = value.value
