"""The implementations of kernels that this project brings: for each op and target one, derived from the op's row."""

from __future__ import annotations

import importlib
import platform
from typing import TYPE_CHECKING, Any

from .all_ops import SYCL_ON_HOST, builder_class
from .engine.errors import OpError
from .kernel_extensions import BuilderExtension, TritonExtension

if TYPE_CHECKING:
    from .builder import OpBuilder
    from .kernel_extensions import KernelExtension
    from .op import Op

__all__ = ["BuiltImplementation", "TritonImplementation", "implementations_of"]

_MACHINES = {"x86": ("x86_64", "AMD64"), "arm": ("aarch64", "arm64")}


class BuiltImplementation(BuilderExtension):
    """An op as its builder for a device makes it.

    Args:
        name: by which a user may ask for it.
        builder: the builder's name.
        device: whose builder it is.
        priority: the highest among those that serve is chosen.
        machines: the architectures of the CPU, as ``platform.machine()`` names them; every one by default.
        follows_accelerator: whether it serves only where the current accelerator is the device.
    """

    load_checks = True

    def __init__(
        self,
        name: str,
        builder: str,
        device: str,
        *,
        priority: int = 1,
        machines: tuple[str, ...] = (),
        follows_accelerator: bool = False,
    ) -> None:
        self.name = name  # type: ignore[misc]
        self.priority = priority  # type: ignore[misc]
        self.support_aot = device != SYCL_ON_HOST  # type: ignore[misc]
        self._builder, self._device = builder, device
        self._machines, self._follows_accelerator = machines, follows_accelerator

    def is_available(self) -> bool:
        if self._device == SYCL_ON_HOST:
            from .engine.toolchains.sycl import probe_dpcpp

            return probe_dpcpp().tool is not None
        if self._follows_accelerator:
            from ..accelerator import get_accelerator

            return get_accelerator().device_name() == self._device
        if self._device == "cpu":
            return not self._machines or platform.machine() in self._machines
        from ..accelerator.detection import rejection

        return not rejection(self._device)

    def builder(self) -> OpBuilder:
        found = builder_class(self._builder, self._device)
        if found is None:
            msg = f"loading '{self.name}' failed: got no {self._builder} for {self._device}; expected one. Fix: report it."
            raise OpError(msg)
        return found()


class TritonImplementation(TritonExtension):
    """An op in Triton; below CUDA until it is measured to be faster there.

    Args:
        target: the class of its functions, ``"module:Class"`` in ``kernels/triton``.
    """

    name = "triton"
    priority = 3

    def __init__(self, target: str) -> None:
        self._target = target

    def load(self) -> Any:
        module, cls = self._target.split(":")
        return getattr(importlib.import_module(f"...kernels.triton.{module}", __name__), cls)()


def implementations_of(op: Op) -> list[KernelExtension]:
    """Return the implementations of an op: one for each device and kind of CPU, and by SYCL and Triton where it has them."""
    found: list[KernelExtension] = [
        BuiltImplementation(f"{op.name}_{kind}", op.builder, "cpu", machines=machines)
        for kind, machines in _MACHINES.items()
    ]
    if op.kernels:
        found = [
            BuiltImplementation(f"{op.name}_cuda", op.builder, "cuda", priority=5),  # anyaccel: ignore[device-name]
            BuiltImplementation(f"{op.name}_xpu", op.builder, "xpu", priority=5),
            *found,
            BuiltImplementation("sycl", op.builder, SYCL_ON_HOST, priority=0),
        ]
    if op.triton:
        found.append(TritonImplementation(op.triton))
    return found
