"""The data of an op, from which its builders, loaders and implementations are derived."""

from __future__ import annotations

import importlib
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CSRC", "DEVICES", "FLOATS", "KERNEL_DEVICES", "ON_HOST", "Op", "instances", "resolve"]

CSRC = Path(__file__).resolve().parents[1] / "csrc"
"""The C++ and CUDA sources: next to this package in a checkout, inside it in a wheel."""

KERNEL_DEVICES: dict[str, str] = {
    "cuda": "op_builder.cuda.device:CudaDevice",  # anyaccel: ignore[device-name]
    "hip": "op_builder.hip.device:HipDevice",
    "xpu": "op_builder.xpu.device:XpuDevice",
}
"""The kinds of device to compile kernels for, each with its ``Device`` class (see ``device_kernels.py``)."""
_WITH_FLOAT64 = ("cuda", "hip")  # anyaccel: ignore[device-name]
DEVICES = ("cpu", *KERNEL_DEVICES)
ON_HOST = "host"
"""For every device: a host-side op runs on the CPU wherever the model is."""

FLOATS = ("float", "BFloat16", "Half")
"""The dtypes of device kernels, by their C++ names."""


class Op(NamedTuple):
    """An op: one library on the host, and kernels compiled for a device from the same formulas.

    Attributes:
        name: the op's name; its formulas are in ``csrc/includes/<name>.h``, its host side in ``csrc/<name>/<name>.cpp``.
        builder: the builder's name, such as ``"RMSNormBuilder"``.
        about: what the op does, in a few words.
        functions: the class of its functions, ``"module:Class"`` in ``kernels/functions``.
        kernels: the kernel template instances to compile for devices.
        float64_kernels: further instances, for gradcheck: only for CUDA and HIP devices, as not every Intel GPU has float64.
        loaders: the names of its kernel loaders, each with a description.
        devices: the devices that have this builder.
        sources: the host sources, relative to ``csrc``.
        triton: the class of its functions in Triton, ``"module:Class"`` in ``kernels/triton``; empty if there is none.
        own_builder: the builder's class, ``"module:Class"``, if the op is not built in the usual way.
    """

    name: str
    builder: str
    about: str
    functions: str = ""
    kernels: tuple[str, ...] = ()
    float64_kernels: tuple[str, ...] = ()
    loaders: Mapping[str, str] = MappingProxyType({})
    devices: tuple[str, ...] = DEVICES
    sources: tuple[str, ...] = ()
    triton: str = ""
    own_builder: str = ""

    def kernels_for(self, kind: str) -> tuple[str, ...]:
        """Return the kernel template instances for a kind of device."""
        return self.kernels + (self.float64_kernels if kind in _WITH_FLOAT64 else ())

    def host_sources(self) -> tuple[str, ...]:
        """Return the C++ sources of the host library, relative to ``csrc``."""
        return self.sources or (f"{self.name}/{self.name}.cpp", "runtime/device_kernels.cpp")

    def header_macro(self) -> str:
        """Return the option that tells the single device source which op header to include."""
        return f'-DANYACCEL_OP_HEADER="{self.name}.h"'

    def functions_class(self) -> Any:
        """Return the class of the op's functions; it takes the namespace of the torch ops."""
        return resolve(f"kernels.functions.{self.functions}")


def resolve(target: str) -> Any:
    """Return the object that ``"module:Name"`` names, relative to ``anyaccel``."""
    module, name = target.split(":")
    return getattr(importlib.import_module(f"..{module}", __package__), name)


def instances(kernels: Sequence[str], *parameters: Sequence[str]) -> tuple[str, ...]:
    """Return the kernel template instances for every combination of template parameters.

    Args:
        kernels: the templates' names.
        parameters: the choices for each template parameter; ``"same"`` repeats the previous choice.
    """
    found: dict[str, None] = {}
    for kernel, choice in product(kernels, product(*parameters)):
        written = [choice[0]]
        for word in choice[1:]:
            written.append(written[-1] if word == "same" else word)
        found[f"{kernel}<{', '.join(written)}>"] = None
    return tuple(found)
