"""Loads an optimizer's saved states as they are: torch would cast them to the dtype of their parameters."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from .foreign_states import with_own_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import torch
    from torch.optim.optimizer import Optimizer

__all__ = ["handed_on", "settle"]


class _Saved:
    """A value in which torch looks for no tensor."""

    def __init__(self, value: Any) -> None:
        self.value = value


@contextlib.contextmanager
def handed_on(optimizer: Optimizer, keys: Collection[str], check: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Let ``load_state_dict`` check a state dict after a program's pre-hooks, and hand on some states as they are.

    :func:`settle` takes them over in ``__setstate__``, so before the program's post-hooks.

    Args:
        optimizer: the optimizer.
        keys: the states to hand on.
        check: raises for options of a group that the optimizer does not take; nothing has changed then.
    """

    def hand_on(_: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        state_dict = with_own_steps(state_dict)
        for group in state_dict["param_groups"]:
            check({**optimizer.defaults, **group})
        states = {
            param: {key: _Saved(value) if key in keys else value for key, value in state.items()}
            for param, state in state_dict["state"].items()
        }
        return {**state_dict, "state": states}

    handle = optimizer.register_load_state_dict_pre_hook(hand_on)
    try:
        yield
    finally:
        handle.remove()


def settle(optimizer: Optimizer, take: Callable[[torch.Tensor, dict[str, Any], str, Any], Any]) -> None:
    """Replace what was handed on by what ``take(param, group, key, value)`` returns."""
    for group in optimizer.param_groups:
        for param in group["params"]:
            kept = optimizer.state.get(param, {})
            for key, value in kept.items():
                if isinstance(value, _Saved):
                    kept[key] = take(param, group, key, value.value)
