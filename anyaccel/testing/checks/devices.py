"""Names, indices and properties of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .expect import expect, expect_type, last_index, made_current

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...accelerator import DeepSpeedAccelerator

__all__ = ["CHECKS"]


def _device_name(accelerator: DeepSpeedAccelerator) -> None:
    expect_type(accelerator.device_name(), str, "device_name()")
    for index in sorted({0, last_index(accelerator)}):
        named = torch.device(accelerator.device_name(index))
        expect(named.type == accelerator.device_name(), f"device_name({index}) is {named}, unlike device_name()")
        tensor = torch.ones(2, device=accelerator.device_name(index))
        expect(tensor.device.type == named.type, f"a tensor made on device_name({index}) is on {tensor.device}")
        expect(tensor.device.index in (None, index), f"a tensor made on device_name({index}) is on {tensor.device}")


def _device(accelerator: DeepSpeedAccelerator) -> None:
    last = last_index(accelerator)
    for device in (accelerator.device(), accelerator.device(0), accelerator.device(last)):
        expect_type(device, torch.device, "device()")
        expect(device.type == accelerator.device_name(), f"device() is {device}, unlike device_name()")
    current = accelerator.device(), accelerator.current_device()
    for device, index in (current, (accelerator.device(0), 0), (accelerator.device(last), last)):
        expect(device.index in (None, index), f"device() is {device}; expected index {index}")


def _set_device(accelerator: DeepSpeedAccelerator) -> None:
    previous = accelerator.current_device()
    for index in range(accelerator.device_count()):
        accelerator.set_device(index)
        found = accelerator.current_device()
        expect(found == index, f"after set_device({index}), current_device() is {found}")
    accelerator.set_device(previous)


def _current_device(accelerator: DeepSpeedAccelerator) -> None:
    expect_type(accelerator.current_device(), int, "current_device()")


def _current_device_name(accelerator: DeepSpeedAccelerator) -> None:
    for current in sorted({accelerator.current_device(), last_index(accelerator)}):
        with made_current(accelerator, current):
            name = accelerator.current_device_name()
        expect_type(name, str, "current_device_name()")
        index = torch.device(name).index
        expect(index in (None, current), f"current_device_name() is {name!r}, not the current index {current}")


def _device_count(accelerator: DeepSpeedAccelerator) -> None:
    expect_type(accelerator.device_count(), int, "device_count()")
    expect(accelerator.device_count() >= 1, f"device_count() is {accelerator.device_count()} on an available device")


def _device_guard(accelerator: DeepSpeedAccelerator) -> None:
    previous = accelerator.current_device()
    last = accelerator.device_count() - 1
    try:
        with accelerator.device_guard(last):
            expect(accelerator.current_device() == last, "device_guard(i) does not make i current")
            raise KeyError(last)
    except KeyError:
        expect(accelerator.current_device() == previous, "device_guard does not restore after an exception")
    for nothing in (None, -1):
        with accelerator.device_guard(nothing):
            expect(accelerator.current_device() == previous, f"device_guard({nothing}) changes the current device")
    device = accelerator.device(last)
    if isinstance(device, torch.device) and device.index is not None:
        with accelerator.device_guard(device):
            expect(accelerator.current_device() == last, f"device_guard({device}) does not make {last} current")


def _synchronize(accelerator: DeepSpeedAccelerator) -> None:
    accelerator.synchronize()
    accelerator.synchronize(0)
    accelerator.synchronize(device_index=0)


def _is_initialized(accelerator: DeepSpeedAccelerator) -> None:
    torch.ones(1, device=accelerator.current_device_name())
    found = accelerator.is_initialized()
    expect(found is True, f"is_initialized() after the first tensor is {found!r}")


def _on_accelerator(accelerator: DeepSpeedAccelerator) -> None:
    here = accelerator.on_accelerator(torch.ones(1, device=accelerator.current_device_name()))
    expect(here is True, f"on_accelerator(a tensor of this device) is {here!r}")
    elsewhere = accelerator.on_accelerator(torch.ones(1, device="meta"))
    expect(elsewhere is False, f"on_accelerator(a meta tensor) is {elsewhere!r}")
    if accelerator.device_name() != "cpu":
        elsewhere = accelerator.on_accelerator(torch.ones(1, device="cpu"))
        expect(elsewhere is False, f"on_accelerator(a tensor of the CPU's) is {elsewhere!r}")


def _get_device_properties(accelerator: DeepSpeedAccelerator) -> None:
    properties = accelerator.get_device_properties(0)
    expect_type(properties.name, str, "get_device_properties(0).name")
    expect(bool(properties.name), "get_device_properties(0).name is empty")
    expect_type(properties.total_memory, int, "get_device_properties(0).total_memory")
    expect(properties.total_memory > 0, f"get_device_properties(0).total_memory is {properties.total_memory}")


def _get_device_capability(accelerator: DeepSpeedAccelerator) -> None:
    found = accelerator.get_device_capability(0)
    expect(
        isinstance(found, tuple | list | dict),
        f"get_device_capability(0) is {found!r}; expected numbers, or names with values",
    )


def _lazy_call(accelerator: DeepSpeedAccelerator) -> None:
    called: list[int] = []
    torch.ones(1, device=accelerator.current_device_name())
    accelerator.lazy_call(lambda: called.append(1))
    expect(called == [1], "lazy_call(callback) on an initialised device does not run the callback")


def _utilization(accelerator: DeepSpeedAccelerator) -> None:
    percent = accelerator.utilization()
    expect_type(percent, int, "utilization()")
    expect(0 <= percent <= 100, f"utilization() is {percent}")


def _can_device_access_peer(accelerator: DeepSpeedAccelerator) -> None:
    peer = min(1, accelerator.device_count() - 1)
    expect_type(accelerator.can_device_access_peer(0, peer), bool, f"can_device_access_peer(0, {peer})")


def _get_arch_list(accelerator: DeepSpeedAccelerator) -> None:
    found = accelerator.get_arch_list()
    expect(isinstance(found, list) and all(isinstance(name, str) for name in found), f"get_arch_list() is {found!r}")


CHECKS: dict[str, Callable[[DeepSpeedAccelerator], None]] = {
    "device_name": _device_name,
    "device": _device,
    "set_device": _set_device,
    "current_device": _current_device,
    "current_device_name": _current_device_name,
    "device_count": _device_count,
    "device_guard": _device_guard,
    "synchronize": _synchronize,
    "is_initialized": _is_initialized,
    "on_accelerator": _on_accelerator,
    "get_device_properties": _get_device_properties,
    "get_device_capability": _get_device_capability,
    "utilization": _utilization,
    "can_device_access_peer": _can_device_access_peer,
    "get_arch_list": _get_arch_list,
    "lazy_call": _lazy_call,
}
