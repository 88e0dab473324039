"""Implementations of one kernel, among which a kernel loader chooses; each has a priority and a way to build it.

The method names are Colossal-AI's.
"""

from __future__ import annotations

import abc
import importlib.util
import platform
from typing import TYPE_CHECKING, Any, ClassVar

from .engine.errors import OpError, OpLoadError

if TYPE_CHECKING:
    from .builder import OpBuilder

__all__ = [
    "BuilderExtension",
    "CppExtension",
    "CudaExtension",
    "KernelExtension",
    "SyclExtension",
    "TritonExtension",
    "has_device",
    "require_package",
]


class KernelExtension(abc.ABC):
    """One implementation of a kernel.

    Attributes:
        name: the name to request it by.
        priority: the highest available priority is chosen.
        support_aot: whether it can be built ahead of time.
        support_jit: whether it can be built at run time on the machine that uses it.
        load_checks: whether ``load`` itself makes the checks of ``assert_compatible`` before it builds anything.
    """

    name: str
    priority: int = 1
    support_aot: bool = True
    support_jit: bool = True
    load_checks: ClassVar[bool] = False

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Return whether this machine has the hardware that it needs."""

    @abc.abstractmethod
    def assert_compatible(self) -> None:
        """Check its other requirements.

        Raises:
            OpError: naming the missing requirement and the fix.
        """

    @abc.abstractmethod
    def load(self) -> Any:
        """Return the kernel's functions, prebuilt or built now."""

    def build_aot(self) -> Any:
        """Return the setuptools extension that builds it.

        Raises:
            OpError: when it does not support ahead-of-time builds.
        """
        msg = f"building '{self.name}' ahead of time failed: support_aot is {self.support_aot}. Fix: call load()."
        raise OpError(msg)

    def build_jit(self) -> Any:
        """Build it on this machine if needed, and return the kernel's functions.

        Raises:
            OpError: when it does not support builds at run time.
        """
        msg = f"building '{self.name}' failed: support_jit is {self.support_jit}. Fix: call load()."
        raise OpError(msg)


class BuilderExtension(KernelExtension):
    """An implementation that an op builder builds."""

    @abc.abstractmethod
    def builder(self) -> OpBuilder:
        """Return the builder."""

    def assert_compatible(self) -> None:
        reason = self.builder().incompatibility()
        if reason:
            raise OpLoadError(reason)

    def load(self) -> Any:
        return self.builder().load()

    def build_aot(self) -> Any:
        return self.builder().builder()

    def build_jit(self) -> Any:
        return self.builder().jit_load()


class CppExtension(BuilderExtension):
    """An implementation in C++ for the CPU.

    Attributes:
        machines: the supported architectures, as ``platform.machine()`` names them; empty for all.
    """

    machines: ClassVar[tuple[str, ...]] = ()

    def is_available(self) -> bool:
        return not self.machines or platform.machine() in self.machines


class CudaExtension(BuilderExtension):
    """An implementation for NVIDIA's GPUs."""

    def is_available(self) -> bool:
        return has_device("cuda")  # anyaccel: ignore[device-name]


class SyclExtension(BuilderExtension):
    """An implementation for Intel's GPUs."""

    def is_available(self) -> bool:
        return has_device("xpu")


class TritonExtension(KernelExtension):
    """An implementation in Triton, which compiles it; ``load`` imports and returns the module."""

    support_aot = False
    support_jit = False

    def is_available(self) -> bool:
        import torch

        if torch.accelerator.current_accelerator() is None:  # a CPU-only build of torch
            return False
        from ..accelerator import get_accelerator

        return get_accelerator().is_triton_supported()

    def assert_compatible(self) -> None:
        require_package(self.name, "triton", "triton")


def has_device(kind: str) -> bool:
    """Return whether torch can use a device of this kind, such as ``"cuda"`` or ``"hip"``, without initialising its driver."""
    from ..accelerator.detection import kernel_rejection

    return not kernel_rejection(kind)


def require_package(extension: str, module: str, package: str) -> None:
    """Check that an implementation's package is installed.

    Args:
        extension: the implementation's name, for the error.
        module: the package's name in Python.
        package: its name for pip.

    Raises:
        OpLoadError: naming the missing package.
    """
    if importlib.util.find_spec(module) is None:
        msg = f"loading '{extension}' failed: the package {module} is not installed. Fix: pip install {package}"
        raise OpLoadError(msg)
