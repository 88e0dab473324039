"""State dicts of deepspeed's and apex's optimizers."""

from __future__ import annotations

from typing import Any

__all__ = ["with_own_steps"]


def with_own_steps(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict in which each parameter counts its steps.

    deepspeed's ``FusedAdam`` and ``FusedLion`` count a group's steps at its last parameter only, apex's at the group; groups of
    both have the key ``step``, which torch's do not.

    Args:
        state_dict: of any optimizer; it is not changed.
    """
    states, groups = dict(state_dict["state"]), []
    for group in state_dict["param_groups"]:
        if "step" in group:
            mine = [param for param in group["params"] if param in states]
            most = max([group["step"], *(states[param].get("step", 0) for param in mine)])
            states.update({param: {**states[param], "step": most} for param in mine})
        groups.append({key: value for key, value in group.items() if key != "step"})
    return {**state_dict, "state": states, "param_groups": groups}
