"""What an op is: a row of data, from which its builders, loaders and implementations are derived."""

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
"""The C++ and CUDA sources, beside this package in a checkout and inside it in a wheel."""

KERNEL_DEVICES: dict[str, str] = {
    "cuda": "op_builder.cuda.device:CudaDevice",  # anyaccel: ignore[device-name]
    "hip": "op_builder.hip.device:HipDevice",
    "xpu": "op_builder.xpu.device:XpuDevice",
}
"""The kinds of device that kernels are compiled for, each with its class, a ``Device`` of ``device_kernels.py``."""
_WITH_FLOAT64 = ("cuda", "hip")  # anyaccel: ignore[device-name]
DEVICES = ("cpu", *KERNEL_DEVICES)
ON_HOST = "host"
"""Serves every device: a host-side op runs on the CPU wherever the model lives."""

FLOATS = ("float", "BFloat16", "Half")
"""The dtypes of device kernels, as C++ names them."""


class Op(NamedTuple):
    """An op: one library on the host, and kernels that are compiled for a device from the same formulas.

    Attributes:
        name: the op's name; its formulas are ``csrc/includes/<name>.h``, its host side ``csrc/<name>/<name>.cpp``.
        builder: the builder's name, such as ``"RMSNormBuilder"``.
        about: what the op does, in a few words.
        functions: the class of its functions, ``"module:Class"`` in ``kernels/functions``.
        kernels: the instances of kernel templates that device code is compiled for.
        float64_kernels: more of them, for gradcheck: CUDA and HIP devices alone get them, as not every Intel GPU has float64.
        loaders: the kernel loaders that choose among its implementations, by name with what each loads.
        devices: the devices that have a builder of this name.
        sources: of the host, relative to ``csrc``.
        triton: the class of its functions in Triton, ``"module:Class"`` in ``kernels/triton``; empty when there is none.
        own_builder: the builder's class, ``"module:Class"``, of an op that is built in a way of its own.
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
        """Return the instances of kernel templates that a kind of device gets."""
        return self.kernels + (self.float64_kernels if kind in _WITH_FLOAT64 else ())

    def host_sources(self) -> tuple[str, ...]:
        """Return the C++ sources of the host library, relative to ``csrc``."""
        return self.sources or (f"{self.name}/{self.name}.cpp", "runtime/device_kernels.cpp")

    def header_macro(self) -> str:
        """Return the option that names the op's header to the one source of device code."""
        return f'-DANYACCEL_OP_HEADER="{self.name}.h"'

    def functions_class(self) -> Any:
        """Return the class of the op's functions, which takes the namespace of its torch ops."""
        return resolve(f"kernels.functions.{self.functions}")


def resolve(target: str) -> Any:
    """Return what ``"module:Name"`` names, relative to ``anyaccel``."""
    module, name = target.split(":")
    return getattr(importlib.import_module(f"..{module}", __package__), name)


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
