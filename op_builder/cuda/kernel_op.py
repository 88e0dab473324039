"""What the builders of this project's ops share on CUDA: device code for the GPUs that are there, and its registration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import environment, loading, prebuilt
from ..engine.build import ensure_built
from ..engine.cache import open_cache
from ..engine.errors import OpLoadError
from ..engine.trace import Trace
from ..kernel_op import KernelOp, register_kernels
from ..targets import cuda_targets_for
from .runtime import CudaRuntimeBuilder

if TYPE_CHECKING:
    from ..engine.entry import Entry

__all__ = ["OnCuda"]


class OnCuda(KernelOp):
    """An op on NVIDIA's GPUs: the host library of its CPU builder, and kernels compiled for each GPU."""

    def host(self) -> KernelOp:
        """Return the builder of the host library."""
        mro = type(self).__mro__
        host: type[KernelOp] = next(cls for cls in mro if issubclass(cls, KernelOp) and not issubclass(cls, OnCuda))
        return host()

    def require_torch(self) -> None:
        self.host().require_torch()
        from ...accelerator.cuda_accelerator import CUDA_Accelerator

        if not CUDA_Accelerator().is_available():
            msg = (
                f"loading the op '{self.name}' failed: got no CUDA device that torch can use; expected one. "
                f"Fix: use the CPU's builder, or install a CUDA build of torch and NVIDIA's driver."
            )
            raise OpLoadError(msg)

    def incompatibility(self) -> str:
        reason = super().incompatibility()
        return reason or "; ".join(filter(None, (self._code_problem(target) for target in self._targets())))

    def load(self, verbose: bool = False) -> Any:
        return self._with_kernels(self.host().load(verbose))

    def jit_load(self, verbose: bool = True) -> Any:
        return self._with_kernels(self.host().jit_load(verbose))

    def _with_kernels(self, functions: Any) -> Any:
        self.require_torch()
        with loading.once(type(self), self.name) as kept:
            if kept.functions is None:
                runtime = CudaRuntimeBuilder().load()
                kernels: dict[tuple[int, int], dict[str, int]] = {}
                for device, capability in enumerate(self._capabilities()):
                    if capability not in kernels:
                        entry = self.device_code(capability)
                        library = runtime.load(self.name, entry.binary.read_bytes())
                        symbols = entry.facts["symbols"]
                        kernels[capability] = {
                            name: runtime.kernel(self.name, library, symbols[f"run<{name}>"]) for name in self.KERNELS
                        }
                    register_kernels(self.name, runtime, device, kernels[capability])
                kept.functions = functions
        return functions

    def device_code(self, capability: tuple[int, int]) -> Entry:
        """Return the device code for a GPU: prebuilt, cached, or compiled now.

        Raises:
            ToolchainError: when there is none yet, and no NVRTC.
            BuildError: when NVRTC refuses the source.
        """
        trace = Trace(f"the device code of '{self.name}'")
        for target in cuda_targets_for(*capability):
            found = prebuilt.find_device_code(self, target, trace)
            if found is not None:
                return found
        recipe = self.device_code_recipe("sm_{}{}".format(*capability))
        return ensure_built(recipe, open_cache(environment.cache_dir()), environment.build_jobs())

    def _capabilities(self) -> list[tuple[int, int]]:
        from ...accelerator.cuda_accelerator import CUDA_Accelerator

        cuda = CUDA_Accelerator()
        return [cuda.get_device_capability(device) for device in range(cuda.device_count())]

    def _targets(self) -> list[tuple[int, int]]:
        return list(dict.fromkeys(self._capabilities()))

    def _code_problem(self, capability: tuple[int, int]) -> str:
        from ..engine.errors import OpError
        from ..engine.toolchains.nvrtc import choose_nvrtc

        trace = Trace(f"the device code of '{self.name}'")
        if any(prebuilt.find_device_code(self, target, trace) for target in cuda_targets_for(*capability)):
            return ""
        try:
            choose_nvrtc()
        except OpError as error:
            return str(error)
        return ""
