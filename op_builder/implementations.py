"""This project's implementations of kernels: one per op and target, derived from the op's row."""

from __future__ import annotations

import platform
from functools import partial
from typing import TYPE_CHECKING, Any

from .all_ops import SYCL_ON_HOST, builder_class
from .engine.errors import OpError
from .kernel_extensions import BuilderExtension, TritonExtension, has_device
from .op import KERNEL_DEVICES, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from .builder import OpBuilder
    from .kernel_extensions import KernelExtension
    from .op import Op

__all__ = ["BuiltImplementation", "TritonImplementation", "implementations_of"]

_MACHINES = {"x86": ("x86_64", "AMD64"), "arm": ("aarch64", "arm64")}


class BuiltImplementation(BuilderExtension):
    """An op, built by its builder for a device.

    Args:
        name: the name to request it by.
        builder: the builder's name.
        device: the builder's device.
        serves: returns whether it is available on this machine.
        priority: the highest available priority is chosen.
    """

    load_checks = True

    def __init__(self, name: str, builder: str, device: str, serves: Callable[[], bool], *, priority: int = 1) -> None:
        self.name = name
        self.priority = priority
        self.support_aot = device != SYCL_ON_HOST
        self._builder, self._device, self._serves = builder, device, serves

    def is_available(self) -> bool:
        return self._serves()

    def builder(self) -> OpBuilder:
        found = builder_class(self._builder, self._device)
        if found is None:
            msg = f"loading '{self.name}' failed: there is no {self._builder} for {self._device}. Fix: report it as a bug."
            raise OpError(msg)
        return found()


class TritonImplementation(TritonExtension):
    """An op in Triton; its priority stays below CUDA's until it is measured to be faster.

    Args:
        target: the class of its functions, ``"module:Class"`` in ``kernels/triton``.
    """

    name = "triton"
    priority = 3

    def __init__(self, target: str) -> None:
        self._target = target

    def load(self) -> Any:
        return resolve(f"kernels.triton.{self._target}")()


def implementations_of(op: Op) -> list[KernelExtension]:
    """Return the implementations of an op: one per device and kind of CPU, and SYCL and Triton if it has them."""
    on_cpu = {kind: partial(_is_machine, machines) for kind, machines in _MACHINES.items()}
    found: list[KernelExtension] = [
        BuiltImplementation(f"{op.name}_{kind}", op.builder, "cpu", serves) for kind, serves in on_cpu.items()
    ]
    if op.kernels:
        on_devices = [
            BuiltImplementation(f"{op.name}_{kind}", op.builder, kind, partial(has_device, kind), priority=5)
            for kind in KERNEL_DEVICES
        ]
        found = [*on_devices, *found, BuiltImplementation("sycl", op.builder, SYCL_ON_HOST, _has_dpcpp, priority=0)]
    if op.triton:
        found.append(TritonImplementation(op.triton))
    return found


def _is_machine(machines: tuple[str, ...]) -> bool:
    return platform.machine() in machines


def _has_dpcpp() -> bool:
    from .engine.toolchains.sycl import probe_dpcpp

    return probe_dpcpp().tool is not None
