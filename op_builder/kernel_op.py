"""Ops whose kernels are written once for every device.

Such an op has one library on the host, which checks arguments, runs CPU tensors on torch's threads, and launches kernels for
tensors elsewhere; and device code, compiled at run time from the same formulas. A kernel is a C++ struct template in
``csrc/includes``; ``KERNELS`` names the instances that device code is compiled for.
"""

from __future__ import annotations

import ctypes
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from . import loading
from .built_in import BuiltInOp
from .cpu.builder import CPUOpBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FLOATS", "DeviceRuntime", "KernelOp", "instances", "register_kernels"]

FLOATS = ("float", "BFloat16", "Half")
"""The dtypes of device kernels, as C++ names them."""


def instances(kernels: Sequence[str], *parameters: Sequence[str]) -> tuple[str, ...]:
    """Return the instances of kernel templates for every combination of template parameters.

    Args:
        kernels: the templates' names.
        parameters: the choices for each template parameter; ``"same"`` repeats the one before.
    """
    found: dict[str, None] = {}
    for kernel, choice in product(kernels, product(*parameters)):
        written = [choice[0]]
        for word in choice[1:]:
            written.append(written[-1] if word == "same" else word)
        found[f"{kernel}<{', '.join(written)}>"] = None
    return tuple(found)


class KernelOp(BuiltInOp, CPUOpBuilder):
    """Builds the host library of an op, which serves CPU tensors and launches what a device's builder has compiled.

    Attributes:
        FUNCTIONS: makes the object with the op's functions, given the namespace of its torch ops.
    """

    FUNCTIONS: ClassVar[type[Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "KERNELS" in cls.__dict__:
            cls.SOURCES = (f"{cls.NAME}/{cls.NAME}.cpp", "runtime/device_kernels.cpp")
            cls.CUDA_SOURCE = f"{cls.NAME}/{cls.NAME}.cu"
            cls.SYCL_SOURCE = f"{cls.NAME}.sycl"

    def include_paths(self) -> list[str]:
        return ["includes", "stable", "runtime"]

    def cxx_args(self) -> list[str]:
        """Return flags for the fastest code that keeps IEEE results, with loops vectorised where they are marked."""
        return [*super().cxx_args(), "-fopenmp-simd"]

    def functions(self) -> Any:
        return type(self).FUNCTIONS("anyaccel")


class DeviceRuntime(Protocol):
    """What loads device code and starts its kernels.

    Attributes:
        number: of ``Runtime`` in ``csrc/runtime/device_kernels.h``.
        launch: the address of its ``LaunchFunction``.
    """

    number: int
    launch: int


def register_kernels(op: str, runtime: DeviceRuntime, device: int, kernels: dict[str, int]) -> None:
    """Give an op's library, which is loaded, the kernels of a device.

    Args:
        op: the op's name.
        runtime: what starts them.
        device: the device's index.
        kernels: the address of each, by its instance's name.
    """
    add = ctypes.CDLL(str(loading.library_of(op))).anyaccel_add_kernel
    add.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    add.restype = None
    for name, kernel in kernels.items():
        add(runtime.number, device, name.encode(), runtime.launch, kernel)
