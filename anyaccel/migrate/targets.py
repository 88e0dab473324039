"""What the rewritten code calls: anyaccel, deepspeed, or torch.accelerator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst
from libcst.helpers import parse_template_expression

from ..accelerator import DeepSpeedAccelerator
from .site import MigrateError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TARGETS", "Target", "expression", "target_named"]

_LATER = frozenset(  # members that deepspeed's class lacks
    [
        "supports",
        "device_guard",
        "set_stream",
        "record_stream",
        "mem_get_info",
        "get_device_properties",
        "get_device_capability",
        "autocast",
        "grad_scaler",
        "tensor_type",
    ]
)
_CONTRACT = frozenset(name for name in dir(DeepSpeedAccelerator) if not name.startswith("_"))
_TORCH = {
    "is_available": "torch.accelerator.is_available",
    "device_count": "torch.accelerator.device_count",
    "current_device": "torch.accelerator.current_device_index",
    "set_device": "torch.accelerator.set_device_index",
    "synchronize": "torch.accelerator.synchronize",
    "current_stream": "torch.accelerator.current_stream",
    "set_stream": "torch.accelerator.set_stream",
    "Stream": "torch.Stream",
    "Event": "torch.Event",
    "empty_cache": "torch.accelerator.empty_cache",
    "memory_allocated": "torch.accelerator.memory_allocated",
    "max_memory_allocated": "torch.accelerator.max_memory_allocated",
    "memory_reserved": "torch.accelerator.memory_reserved",
    "max_memory_reserved": "torch.accelerator.max_memory_reserved",
    "memory_stats": "torch.accelerator.memory_stats",
    "reset_peak_memory_stats": "torch.accelerator.reset_peak_memory_stats",
    "device_guard": "torch.accelerator.device_index",
}


@dataclass(frozen=True)
class Target:
    """What the rewritten code is written for.

    Attributes:
        name: as the command line spells it.
        package: from where ``get_accelerator`` is imported; empty where nothing is.
        members: by a member of the contract, the function that serves it, without its call.
    """

    name: str
    package: str
    members: Mapping[str, str] = field(repr=False)

    def function(self, member: str, accelerator: str) -> str | None:
        """Return the expression of a member, or None where this target has none.

        Args:
            member: of the contract, such as ``"device_name"``.
            accelerator: the expression of the accelerator, as ``get_accelerator()``.
        """
        served = self.members.get(member)
        return None if served is None else served.format(accelerator=accelerator)


def _methods(members: frozenset[str]) -> dict[str, str]:
    return {member: f"{{accelerator}}.{member}" for member in members}


TARGETS = {
    target.name: target
    for target in (
        Target("anyaccel", "anyaccel", _methods(_CONTRACT)),
        Target("deepspeed", "deepspeed.accelerator", _methods(_CONTRACT - _LATER)),
        Target("torch.accelerator", "", _TORCH),
    )
}


def target_named(name: str) -> Target:
    """Return a target by name.

    Raises:
        MigrateError: when there is none.
    """
    if name not in TARGETS:
        msg = f"choosing the target failed: got '{name}'; expected {', '.join(TARGETS)}. Fix: pass one of them."
        raise MigrateError(msg)
    return TARGETS[name]


def expression(template: str, **nodes: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression with nodes in the places that the template names in braces."""
    return parse_template_expression(template, cst.PartialParserConfig(), **nodes)
