"""The one table of builders: name, and the class for each device."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .engine.errors import OpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .builder import OpBuilder

__all__ = [
    "BUILDERS",
    "ON_HOST",
    "add_finder",
    "attributes",
    "builder_class",
    "every_builder",
    "find_builder",
    "load_op",
]

ON_HOST = "host"
"""Serves every device: a host-side op runs on the CPU wherever the model lives."""

_GPUS = ("cuda", "xpu")  # anyaccel: ignore[device-name]
_DEVICES = ("cpu", *_GPUS)
_DEEPSPEEDS = (
    "FPQuantizerBuilder", "FusedLambBuilder", "FusedLionBuilder", "InferenceCoreBuilder", "QuantizerBuilder",
)  # fmt: skip
_KERNELS = (
    "ActivationsBuilder", "AdagradBuilder", "DenseBuilder", "LambBuilder", "LayerNormBuilder", "LionBuilder", "MoeBuilder",
    "MultiTensorAdamBuilder", "MultiTensorBuilder", "QuantizationBuilder", "RMSNormBuilder", "RotaryEmbeddingBuilder",
    "SGDBuilder", "SoftmaxBuilder",
)  # fmt: skip


def _on(devices: tuple[str, ...], target: str) -> dict[str, str]:
    """Return where a builder is for each device."""
    return {device: f"{device}.{target}" for device in devices}


BUILDERS: dict[str, dict[str, str]] = {
    "CPUAdamBuilder": {ON_HOST: "cpu.cpu_adam:CPUAdamBuilder"},
    "FusedAdamBuilder": {"cpu": "cpu.fused_adam:FusedAdamBuilder", **_on(_GPUS, "deepspeed:FusedAdamBuilder")},
    "CPUAdagradBuilder": {ON_HOST: "cpu.deepspeed:CPUAdagradBuilder"},
    "CPULionBuilder": {ON_HOST: "cpu.deepspeed:CPULionBuilder"},
    **{name: _on(_DEVICES, f"deepspeed:{name}") for name in _DEEPSPEEDS},
    **{name: _on(_DEVICES, f"kernels:{name}") for name in _KERNELS},
    "ShmCommBuilder": {ON_HOST: "cpu.shm_comm:ShmCommBuilder"},
    "CudaRuntimeBuilder": {"cuda": "cuda.runtime:CudaRuntimeBuilder"},  # anyaccel: ignore[device-name]
    "SyclRuntimeBuilder": {"xpu": "xpu.runtime:SyclRuntimeBuilder"},
}


def every_builder() -> list[OpBuilder]:
    """Return a builder of every class in the table, whatever device it serves."""
    targets = dict.fromkeys(target for by_device in BUILDERS.values() for target in by_device.values())
    return [_imported(target)() for target in targets]


def builder_class(class_name: str, device: str) -> type[OpBuilder] | None:
    """Return the class of a builder for a device, or None when the device has none of that name.

    Args:
        class_name: such as ``"CPUAdamBuilder"``.
        device: the device's type, such as ``"cuda"``.
    """
    by_device = BUILDERS.get(class_name, {})
    target = by_device.get(device) or by_device.get(ON_HOST)
    if target is None:
        return None
    return _imported(target)


_finders: list[Callable[[str, str, Any], Any]] = []


def add_finder(finder: Callable[[str, str, Any], Any]) -> None:
    """Let a function decide what ``get_op_builder`` returns; the one added last decides last.

    Args:
        finder: called with the class's name, the device's type and what is found so far (None when nothing is); returns
            the class to use, or None when there is none.
    """
    if finder not in _finders:
        _finders.append(finder)


def find_builder(class_name: str, device: str) -> Any:
    """Return the class that ``get_op_builder`` returns: the table's, and what the finders make of it."""
    found: Any = builder_class(class_name, device)
    for finder in _finders:
        found = finder(class_name, device, found)
    return found


def attributes(module: str, find: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__``, whose attributes are found when they are asked for.

    Args:
        module: its name.
        find: returns an attribute by its name, or None when there is none.
    """

    def attribute(name: str) -> Any:
        found = find(name)
        if found is None:
            msg = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return found

    return attribute


def _imported(target: str) -> type[OpBuilder]:
    module, name = target.split(":")
    found: type[OpBuilder] = getattr(importlib.import_module(f".{module}", __package__), name)
    return found


def load_op(name: str) -> Any:
    """Build and load an op for the current accelerator, by its own name or its builder's.

    Args:
        name: such as ``"cpu_adam"`` or ``"CPUAdamBuilder"``.

    Returns:
        The object with the op's functions.

    Raises:
        OpError: when the accelerator has no such op, or it cannot be built or loaded.
    """
    from ..accelerator import get_accelerator

    device = get_accelerator().device_name()
    builders = [found for class_name in BUILDERS if (found := builder_class(class_name, device)) is not None]
    for builder in builders:
        if name in (builder.NAME, builder.__name__):
            return builder().load()
    choices = ", ".join(builder.NAME for builder in builders)
    msg = f"loading the op failed: got {name!r} on '{device}'; expected one of: {choices}. Fix: correct the name."
    raise OpError(msg)
