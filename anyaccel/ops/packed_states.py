"""Optimizer states of many small parameters in a few large tensors, of which each parameter's states are views.

What an optimizer's step costs with thousands of small parameters is looking at each of its tensors. Packed, the states are
looked at once; ``state_dict`` and ``optimizer.state`` show the views, which are tensors like any other. Whoever replaces one
has unpacked that step: ``holds`` says so, and the step takes the general way.
"""

from __future__ import annotations

from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PackedStates"]

_MAX_ELEMENTS = 1 << 16
"""A larger parameter gains nothing: its step takes longer than looking at its tensors."""


class PackedStates:
    """Packs the states of parameters that :meth:`suits` accepts, replacing them by views.

    Args:
        params: the parameters.
        states: their entries in ``optimizer.state``, in the same order.
        moments: the keys of the states that have the parameter's shape; ``step`` has one element.
    """

    def __init__(
        self, params: Sequence[torch.Tensor], states: Sequence[dict[str, Any]], moments: Sequence[str]
    ) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._views: dict[str, list[torch.Tensor]] = {}
        for key in moments:
            self.tensors[key] = torch.cat([state[key].reshape(-1) for state in states])
            shares = self.tensors[key].split([param.numel() for param in params])
            self._views[key] = [share.view_as(param) for share, param in zip(shares, params, strict=True)]
        self.tensors["step"] = torch.stack([state["step"] for state in states])
        self._views["step"] = list(self.tensors["step"].unbind())
        for key, views in self._views.items():
            for state, view in zip(states, views, strict=True):
                state[key] = view

    @staticmethod
    def suits(params: Sequence[torch.Tensor], states: Sequence[dict[str, Any]], moments: Sequence[str]) -> bool:
        """Return whether packing is possible and worth it: several small, contiguous parameters, one dtype of states."""
        return (
            len(params) > 1
            and all(param.numel() <= _MAX_ELEMENTS and param.is_contiguous() for param in params)
            and all(state["step"].shape == () and state["step"].dtype == torch.float32 for state in states)
            and len({state[key].dtype for state in states for key in moments}) == 1
        )

    def holds(self, states: Sequence[dict[str, Any]]) -> bool:
        """Return whether these states are still the views, all of them and in this order."""
        return len(states) == len(self._views["step"]) and all(
            all(map(is_, map(itemgetter(key), states), views)) for key, views in self._views.items()
        )
