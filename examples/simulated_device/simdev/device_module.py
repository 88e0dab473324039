"""The module that becomes ``torch.simdev``. Its members have the meaning of those in ``torch.cuda``.

Memory statistics and streams are not here: ``TorchAccelerator`` takes them from ``torch.accelerator``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.accelerator import current_device_index as current_device
from torch.accelerator import get_device_capability
from torch.accelerator import get_memory_info as mem_get_info

if TYPE_CHECKING:
    Device = torch.device | str | int | None

__all__ = [
    "DeviceProperties", "current_device", "default_generators",
    "default_stream", "device", "device_count", "get_amp_supported_dtype", "get_device_capability",
    "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all", "init", "initial_seed",
    "is_available", "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all", "mem_get_info", "seed",
    "seed_all", "set_device", "set_rng_state", "set_rng_state_all",
]  # fmt: skip

_NAME = "simdev"
_initialized = True  # torch.utils.checkpoint keeps a device's random state only if its module has this
_PRIVATE_USE_1 = int(torch._C._autograd.DeviceType.PrivateUse1)  # type: ignore[attr-defined]

default_generators = tuple(torch.ops.simdev.default_generator(i) for i in range(torch.ops.simdev.device_count()))


def _index(device: Device) -> int:
    """Return the index that a device names, or the current device's if it names none."""
    if isinstance(device, int):
        return device
    named = torch.device(_NAME if device is None else device)
    if named.type != _NAME:
        msg = (
            f"finding the simdev device failed: got {device!r}; expected a simdev device. Fix: pass one, or its index."
        )
        raise ValueError(msg)
    return current_device() if named.index is None else named.index


# Devices


def is_available() -> bool:
    return True


def device_count() -> int:
    return len(default_generators)


def set_device(device: Device) -> None:
    torch.accelerator.set_device_index(_index(device))


class device(torch.accelerator.device_index):  # noqa: N801  # like torch.cuda.device
    """Makes a device current in a ``with`` block; None and negative indices change nothing."""

    def __init__(self, device: Device) -> None:
        index = -1 if device is None else _index(device)
        super().__init__(None if index < 0 else index)


@dataclass(frozen=True)
class DeviceProperties:
    """The properties of a device.

    Attributes:
        name: its name.
        total_memory: its memory in bytes.
    """

    name: str
    total_memory: int


def get_device_properties(device: Device = None) -> DeviceProperties:
    index = _index(device)
    return DeviceProperties(f"Simulated device {index}", mem_get_info(index)[1])


def get_device_name(device: Device = None) -> str:
    return get_device_properties(device).name


def init() -> None:
    """Do nothing: importing the package has started the devices."""


_lazy_init = init  # without it, torch.accelerator.synchronize does nothing with torch 2.10


def is_initialized() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return False  # the devices are in the process's own memory, so a forked child has a copy of them


# Data types


def is_bf16_supported() -> bool:
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


# Random numbers


def manual_seed(seed: int) -> None:
    default_generators[current_device()].manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    for generator in default_generators:
        generator.manual_seed(seed)


def seed() -> None:
    default_generators[current_device()].seed()


def seed_all() -> None:
    manual_seed_all(default_generators[0].seed())


def initial_seed() -> int:
    return int(default_generators[current_device()].initial_seed())


def get_rng_state(device: Device = None) -> torch.Tensor:
    state: torch.Tensor = default_generators[_index(device)].get_state()
    return state


def get_rng_state_all() -> list[torch.Tensor]:
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: Device = None) -> None:
    default_generators[_index(device)].set_state(new_state)


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    for generator, state in zip(default_generators, new_states, strict=True):
        generator.set_state(state)


# Streams


def default_stream(device: Device = None) -> torch.Stream:
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=_PRIVATE_USE_1)
