"""What the builders of this project's ops share on SYCL devices: XPUs, and the CPU by Intel's OpenCL."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import environment, loading
from ..engine.build import ensure_built
from ..engine.cache import open_cache
from ..engine.device_code import DeviceCodeRecipe
from ..engine.errors import OpError, OpLoadError
from ..engine.toolchains.sycl import choose_dpcpp
from ..kernel_op import KernelOp, register_kernels
from .runtime import HostSyclRuntime, SyclRuntimeBuilder, XpuSyclRuntime, device_options, include_dirs, with_kernels

if TYPE_CHECKING:
    import ctypes

__all__ = ["SYCL_SOURCES", "OnHostBySycl", "OnXpu"]

SYCL_SOURCES = Path(__file__).resolve().parents[2] / "kernels" / "sycl"
"""The SYCL sources, beside this package in a checkout and inside it in a wheel."""


class _BySycl(KernelOp):
    """The host library of an op's CPU builder, and kernels that DPC++ compiles."""

    def host(self) -> KernelOp:
        """Return the builder of the host library."""
        mro = type(self).__mro__
        host: type[KernelOp] = next(cls for cls in mro if issubclass(cls, KernelOp) and not issubclass(cls, _BySycl))
        return host()

    def incompatibility(self) -> str:
        reason = super().incompatibility()
        return reason or SyclRuntimeBuilder().incompatibility()

    def load(self, verbose: bool = False) -> Any:
        self.require_torch()
        with loading.once(type(self), self.name) as kept:
            if kept.functions is None:
                runtime, functions = self._both(verbose)
                self.register(runtime)
                kept.functions = self.functions_of(functions)
            return kept.functions

    def jit_load(self, verbose: bool = True) -> Any:
        return self.load(verbose)

    def _both(self, verbose: bool) -> tuple[ctypes.CDLL, Any]:
        """Load the runtime and the host library, which a first time are built side by side."""
        failed: list[BaseException] = []

        def load_runtime() -> None:
            try:
                SyclRuntimeBuilder().load(verbose)
            except OpError as error:
                failed.append(error)

        thread = threading.Thread(target=load_runtime)
        thread.start()
        try:
            functions = self.host().load(verbose)
        finally:
            thread.join()
        if failed:
            raise failed[0]
        return SyclRuntimeBuilder().load(verbose), functions

    def register(self, library: ctypes.CDLL) -> None:
        """Compile the kernels, and give them to the host library."""
        raise NotImplementedError

    def functions_of(self, functions: Any) -> Any:
        """Return the functions that use the kernels, given the host library's."""
        return functions


class OnXpu(_BySycl):
    """An op on Intel's GPUs."""

    def require_torch(self) -> None:
        self.host().require_torch()
        from ...accelerator.xpu_accelerator import XPU_Accelerator

        if not XPU_Accelerator().is_available():
            msg = (
                f"loading the op '{self.name}' failed: got no XPU that torch can use; expected one. "
                f"Fix: use the CPU's builder, or install an XPU build of torch and Intel's driver."
            )
            raise OpLoadError(msg)

    def register(self, library: ctypes.CDLL) -> None:
        from ...accelerator.xpu_accelerator import XPU_Accelerator

        runtime = XpuSyclRuntime(library)
        source = SYCL_SOURCES / self.SYCL_SOURCE
        text, symbols = with_kernels(source.read_text(encoding="utf-8"), self.KERNELS)
        options = [*device_options(choose_dpcpp().version), *(f"-I{folder}" for folder in include_dirs())]
        for device in range(XPU_Accelerator().device_count()):
            kernels = runtime.kernels(self.name, device, text, options, symbols)
            register_kernels(self.name, runtime, device, kernels)


class OnHostBySycl(_BySycl):
    """An op on the CPU by Intel's OpenCL: how the SYCL code is tested where there is no XPU."""

    def require_torch(self) -> None:
        self.host().require_torch()
        choose_dpcpp()

    def register(self, library: ctypes.CDLL) -> None:
        runtime = HostSyclRuntime(library)
        recipe = DeviceCodeRecipe(
            op=f"{self.name}_sycl",
            source=SYCL_SOURCES / self.SYCL_SOURCE,
            include_dirs=include_dirs(),
            target="opencl-cpu",
            compiler=runtime.compiler(),
            options=device_options(choose_dpcpp().version),
            output=f"{self.name}_sycl.bin",
            kernels=self.KERNELS,
        )
        entry = ensure_built(recipe, open_cache(environment.cache_dir()), environment.build_jobs())
        kernels = runtime.kernels(self.name, entry.binary.read_bytes(), entry.facts["symbols"])
        register_kernels(self.name, runtime, 0, kernels)

    def functions_of(self, functions: Any) -> Any:
        return type(self).FUNCTIONS("anyaccel_sycl")
