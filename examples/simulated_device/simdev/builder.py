"""Builds the device's runtime on first use."""

from __future__ import annotations

from typing import Any

from anyaccel.op_builder import CPUOpBuilder

__all__ = ["SimdevBuilder"]

_SOURCES = ("autocast", "torch_side", "device", "generator", "guard", "memory")


class SimdevBuilder(CPUOpBuilder):
    """Builds ``csrc``, a Python module with torch's ordinary headers, for this machine, Python and torch."""

    NAME = "simdev"
    SOURCES = tuple(f"csrc/{name}.cpp" for name in _SOURCES)

    def cxx_args(self) -> list[str]:
        return [*super().cxx_args(), "-fvisibility=hidden"]

    def load(self, verbose: bool = False) -> Any:
        """Build the runtime if needed, register the device with torch, and return the module that becomes ``torch.simdev``.

        Raises:
            ToolchainError: when no compiler or no Python headers are found.
            BuildError: when the compiler fails.
        """
        import torch

        if not hasattr(torch, self.name):  # a process can have only one device on the PrivateUse1 key
            super().load(verbose)
            from . import device_module  # it needs the runtime's generators

            torch.utils.rename_privateuse1_backend(self.name)
            torch._register_device_module(self.name, device_module)
            torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
        return getattr(torch, self.name)
