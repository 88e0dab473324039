"""Ops on devices: an op's host library, and kernels that are compiled for the device from the same formulas."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from . import loading
from .cpu.autograd import recorder
from .engine.errors import OpLoadError
from .holding import HoldingBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from .op import Op

__all__ = ["Device", "DeviceKernels", "DeviceRuntime", "register_kernels"]


class Device(Protocol):
    """A kind of device to compile kernels for.

    Attributes:
        kind: the device type, such as ``"cuda"``.
        namespace: the namespace of the torch ops that run there.
    """

    kind: str
    namespace: str

    def require(self, op: str) -> None:
        """Check that a device of this kind can be used here.

        Raises:
            OpError: when no device can be used.
        """

    def code_problem(self, op: Op) -> str:
        """Return why an op's kernels cannot be compiled here; empty when they can."""

    def load_runtime(self) -> None:
        """Load the runtime that starts kernels, building it if needed."""

    def register(self, op: Op) -> None:
        """Compile an op's kernels for every device of this kind, and register them with its loaded host library."""


class DeviceKernels(HoldingBuilder):
    """Loads an op for a kind of device: the host library and the kernels that it launches there.

    Attributes:
        OP: the op's row in the table.
        DEVICE: the kind of device.
    """

    OP: ClassVar[Op]
    DEVICE: ClassVar[Device]

    def require_torch(self) -> None:
        super().require_torch()
        self.DEVICE.require(self.name)

    def incompatibility(self) -> str:
        return super().incompatibility() or self.DEVICE.code_problem(self.OP)

    def load(self, verbose: bool = False) -> Any:
        return self._with_kernels(lambda: self.held.load(verbose))

    def jit_load(self, verbose: bool = True) -> Any:
        return self._with_kernels(lambda: self.held.jit_load(verbose))

    def _with_kernels(self, load_host: Callable[[], Any]) -> Any:
        self.require_torch()
        kind, namespace = self.DEVICE.kind, self.DEVICE.namespace
        with loading.once(type(self), self.name):
            problem = self.DEVICE.code_problem(self.OP)
            if problem:
                raise OpLoadError(problem)
            functions = self._beside_the_runtime(load_host)
            library = loading.library_of(self.name)
            if kind not in library.on_device:
                self.DEVICE.register(self.OP)
                is_hosts = namespace == "anyaccel"
                library.on_device[kind] = functions if is_hosts else self.OP.functions_class()(namespace, recorder)
            return library.on_device[kind]

    def _beside_the_runtime(self, load_host: Callable[[], Any]) -> Any:
        """Load the host library and the runtime; the first time, build them in parallel."""
        if self.is_built():
            self.DEVICE.load_runtime()
            return load_host()
        failed: list[BaseException] = []

        def load_runtime() -> None:
            try:
                self.DEVICE.load_runtime()
            except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
                failed.append(error)

        thread = threading.Thread(target=load_runtime)
        thread.start()
        try:
            functions = load_host()
        finally:
            thread.join()
        if failed:
            raise failed[0]
        return functions


class DeviceRuntime(Protocol):
    """Loads device code and starts its kernels.

    Attributes:
        kind: the kind of device, as in ``csrc/runtime/devices.h``.
        launch: the address of its ``LaunchFunction``.
    """

    kind: str
    launch: int


def register_kernels(op: str, runtime: DeviceRuntime, device: int, kernels: dict[str, int], units: int = 0) -> None:
    """Register the kernels of a device with an op's loaded library.

    Args:
        op: the op's name.
        runtime: the runtime that starts them.
        device: the device's index.
        kernels: the address of each kernel, by the name of its instance.
        units: the device's number of multiprocessors, which decides launch shapes; 0 if unknown.
    """
    add = ctypes.CDLL(str(loading.library_of(op).binary)).anyaccel_add_kernel
    add.argtypes = [ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    add.restype = None
    for name, kernel in kernels.items():
        add(runtime.kind.encode(), device, units, name.encode(), runtime.launch, kernel)
