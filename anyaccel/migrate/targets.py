"""The APIs that the rewritten code can call: anyaccel, deepspeed, or torch.accelerator."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import libcst as cst
from libcst.helpers import parse_template_expression

from ..accelerator import DeepSpeedAccelerator
from .site import MigrateError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BEYOND_DEEPSPEED", "HELPERS", "TARGETS", "Target", "expression", "helpers_called", "parsed", "target_named"]

BEYOND_DEEPSPEED = frozenset(  # members that deepspeed's class lacks
    [
        "supports",
        "device_guard",
        "is_initialized",
        "set_stream",
        "record_stream",
        "mem_get_info",
        "get_device_properties",
        "get_device_capability",
        "autocast",
        "grad_scaler",
        "tensor_type",
        "get_rng_state_all",
        "set_rng_state_all",
        "seed",
        "seed_all",
        "memory_summary",
        "memory_snapshot",
        "reset_accumulated_memory_stats",
        "get_per_process_memory_fraction",
        "set_per_process_memory_fraction",
        "MemPool",
        "use_mem_pool",
        "utilization",
        "can_device_access_peer",
        "get_arch_list",
        "graph_pool_handle",
        "make_graphed_callables",
    ]
)
_CONTRACT = frozenset(name for name in dir(DeepSpeedAccelerator) if not name.startswith("_"))
_RAISES_ON_CPU = {  # by member: the torch.accelerator function, which raises without an accelerator, and a default
    "current_device": ("current_device_index", ""),
    "set_device": ("set_device_index", ""),
    "synchronize": ("synchronize", ""),
    "empty_cache": ("empty_cache", ""),
    "memory_allocated": ("memory_allocated", ""),
    "max_memory_allocated": ("max_memory_allocated", ""),
    "memory_reserved": ("memory_reserved", ""),
    "max_memory_reserved": ("max_memory_reserved", ""),
    "reset_peak_memory_stats": ("reset_peak_memory_stats", ""),
    "memory_stats": ("memory_stats", ", {{}}"),
    "reset_accumulated_memory_stats": ("reset_accumulated_memory_stats", ""),
    "mem_get_info": ("get_memory_info", ", (0, 0)"),
}
_TORCH = {
    **{
        member: f"{{accelerator}}if_accelerator(torch.accelerator.{name}{default})"
        for member, (name, default) in _RAISES_ON_CPU.items()
    },
    "is_available": "torch.accelerator.is_available",
    "device_count": "{accelerator}accelerator_count",
    "Stream": "torch.Stream",
    "Event": "torch.Event",
    "device_name": "{accelerator}accelerator_name",
    "communication_backend_name": "{accelerator}accelerator_backend",
}
_ADVISED = re.compile(r"\bget_accelerator\(\)\.(\w+)(?=\()")
HELPERS = {
    "accelerator_name": '''
def {name}(index=None):
    """Return the name of this machine's accelerator, or "cpu"; an index is appended, and a device keeps its own name."""
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return "cpu"
    text = "" if index is None else f"{{index}}"
    return text if text[:1].isalpha() else f"{{device.type}}:{{text}}".rstrip(":")
''',
    "accelerator_backend": '''
def {name}():
    """Return the backend of torch.distributed for this machine's accelerator, or for the CPU."""
    device = torch.accelerator.current_accelerator(check_available=True)
    return torch.distributed.get_default_backend_for_device(device or "cpu")
''',
    "accelerator_count": '''
def {name}():
    """Return the number of this machine's accelerators, or 1 for the CPU alone: a rank can be divided by it."""
    return max(torch.accelerator.device_count(), 1)
''',
    "if_accelerator": '''
def {name}(function, otherwise=0):
    """Return a function of torch.accelerator, or one that does nothing where this machine has no accelerator."""
    return function if torch.accelerator.is_available() else lambda *args, **options: otherwise
''',
}
"""Helper functions that are added to a module that calls them, because torch.accelerator does not handle the CPU."""


@dataclass(frozen=True)
class Target:
    """An API that the rewritten code can call.

    Attributes:
        name: the name on the command line.
        package: the package to import ``get_accelerator`` from; empty if nothing is imported.
        members: the function for each member of the contract, without parentheses.
        names_devices: whether ``device_name()`` takes a device as well as an index, and returns that device's name.
    """

    name: str
    package: str
    members: Mapping[str, str] = field(repr=False)
    names_devices: bool = True

    def function(self, member: str, accelerator: str) -> str | None:
        """Return the expression for a member, or None if this target lacks it.

        Args:
            member: a member of the contract, such as ``"device_name"``.
            accelerator: the expression for the accelerator, such as ``get_accelerator()``.
        """
        served = self.members.get(member)
        return None if served is None else served.format(accelerator=accelerator)

    def advice(self, reason: str, accelerator: str) -> str:
        """Return a reason for the user in which the advice names what this target has, or the target that has it."""
        named = {name: self.function(name, accelerator) for name in _ADVISED.findall(reason)}
        for name, served in named.items():
            if served is not None and not self.package:
                reason = reason.replace(f"get_accelerator().{name}(", f"{served}(")
        lacking = [name for name, served in named.items() if served is None and name in _CONTRACT]
        return f"{reason} (--target anyaccel has {', '.join(lacking)}, {self.name} has not)" if lacking else reason


def helpers_called(target: Target, accelerator: str, news: list[str]) -> dict[str, str]:
    """Return the source of the helpers that new code calls and its module must define, by name."""
    if target.package:
        return {}
    named = {f"{accelerator}{name}": text for name, text in HELPERS.items()}
    return {
        name: text.format(name=name)
        for name, text in named.items()
        if any(re.search(rf"\b{name}\b", new) for new in news)
    }


def _methods(members: frozenset[str]) -> dict[str, str]:
    return {member: f"{{accelerator}}.{member}" for member in members}


TARGETS = {
    target.name: target
    for target in (
        Target("anyaccel", "anyaccel", _methods(_CONTRACT)),
        Target("deepspeed", "deepspeed.accelerator", _methods(_CONTRACT - BEYOND_DEEPSPEED), names_devices=False),
        Target("torch.accelerator", "", _TORCH),
    )
}


def target_named(name: str) -> Target:
    """Return a target by name.

    Raises:
        MigrateError: when no target has this name.
    """
    if name not in TARGETS:
        msg = f"choosing the target failed: got '{name}'; expected {', '.join(TARGETS)}. Fix: pass --target with one of these."
        raise MigrateError(msg)
    return TARGETS[name]


def expression(template: str, **nodes: cst.BaseExpression) -> cst.BaseExpression:
    """Return a template's expression in which nodes replace the names in braces."""
    if not nodes:
        return parsed(template)
    return parse_template_expression(template, cst.PartialParserConfig(), **nodes)


@lru_cache(maxsize=1024)
def parsed(code: str) -> cst.BaseExpression:
    """Parse an expression; a new tree may contain the cached node several times, as nothing looks it up there."""
    return cst.parse_expression(code)
