"""What the rewritten code calls: anyaccel, deepspeed, or torch.accelerator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst
from libcst.helpers import parse_template_expression

from .site import MigrateError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TARGETS", "Target", "expression", "target_named"]

_CONTRACT = frozenset(
    [
        "is_available",
        "device_name",
        "device",
        "current_device",
        "current_device_name",
        "device_count",
        "set_device",
        "synchronize",
        "set_rng_state",
        "get_rng_state",
        "manual_seed",
        "manual_seed_all",
        "initial_seed",
        "default_generator",
        "Stream",
        "stream",
        "current_stream",
        "default_stream",
        "Event",
        "empty_cache",
        "memory_allocated",
        "max_memory_allocated",
        "reset_max_memory_allocated",
        "memory_cached",
        "max_memory_cached",
        "reset_max_memory_cached",
        "memory_stats",
        "reset_peak_memory_stats",
        "memory_reserved",
        "max_memory_reserved",
        "total_memory",
        "available_memory",
        "is_bf16_supported",
        "is_fp16_supported",
        "range_push",
        "range_pop",
        "lazy_call",
        "communication_backend_name",
        "is_current_stream_capturing",
        "create_graph",
        "capture_to_graph",
        "replay_graph",
        "BFloat16Tensor",
        "ByteTensor",
        "DoubleTensor",
        "FloatTensor",
        "HalfTensor",
        "IntTensor",
        "LongTensor",
        "pin_memory",
        "on_accelerator",
    ]
)
_OURS = frozenset(
    ["device_guard", "set_stream", "mem_get_info", "get_device_properties", "tensor_type", "record_stream"]
)
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
        Target("anyaccel", "anyaccel", _methods(_CONTRACT | _OURS)),
        Target("deepspeed", "deepspeed.accelerator", _methods(_CONTRACT)),
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
