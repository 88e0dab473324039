"""CUDA as a device for this project's ops: kernels compiled by NVRTC for this machine's GPUs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..device_kernels import register_kernels
from ..engine import environment, prebuilt
from ..engine.build import ensure_built
from ..engine.cache import open_cache
from ..engine.errors import OpError, OpLoadError
from ..engine.targets import cuda_targets_for
from ..engine.trace import Trace
from .compatibility import driver_refusal, driver_version
from .device_code import device_code_recipe, target_here
from .runtime import CudaRuntimeBuilder

if TYPE_CHECKING:
    from ...accelerator.cuda_accelerator import CUDA_Accelerator
    from ..engine.entry import Entry
    from ..op import Op

__all__ = ["CudaDevice", "device_code"]


class CudaDevice:
    """NVIDIA's GPUs."""

    kind = "cuda"
    namespace = "anyaccel"

    def require(self, op: str) -> None:
        from ...accelerator.detection import kernel_rejection

        if kernel_rejection(self.kind):
            msg = (
                f"loading the op '{op}' failed: torch finds no usable CUDA device. "
                f"Fix: use the CPU's builder, or install a CUDA build of torch and NVIDIA's driver."
            )
            raise OpLoadError(msg)

    def code_problem(self, op: Op) -> str:
        return "; ".join(filter(None, (_code_problem(op, capability) for capability in dict.fromkeys(_capabilities()))))

    def load_runtime(self) -> None:
        CudaRuntimeBuilder().load()

    def register(self, op: Op) -> None:
        runtime = CudaRuntimeBuilder().load()
        kernels: dict[tuple[int, int], dict[str, int]] = {}
        current = _cuda().current_device()
        for device, capability in enumerate(_capabilities()):
            if capability not in kernels:
                entry = device_code(op, capability)
                library = runtime.load(op.name, entry.binary.read_bytes())
                symbols = entry.facts["symbols"]
                kernels[capability] = {
                    name: runtime.kernel(op.name, library, symbols[f"run<{name}>"]) for name in op.kernels_for("cuda")
                }
            if device == current or runtime.is_used(op.name, device):  # on others it would only use memory
                for kernel in kernels[capability].values():
                    runtime.prepare(op.name, kernel, device)
            units = _cuda().get_device_properties(device).multi_processor_count
            register_kernels(op.name, runtime, device, kernels[capability], units)


def device_code(op: Op, capability: tuple[int, int]) -> Entry:
    """Return the device code for a GPU: prebuilt, from the cache, or compiled now.

    Raises:
        ToolchainError: when there is no code yet and no NVRTC, or the GPU's driver rejects NVRTC's code.
        BuildError: when NVRTC rejects the source.
    """
    found = _prebuilt(op, capability)
    if found is not None:
        return found
    recipe = device_code_recipe(op, target_here(capability))
    return ensure_built(recipe, open_cache(environment.cache_dir()), environment.build_jobs())


def _prebuilt(op: Op, capability: tuple[int, int]) -> Entry | None:
    trace = Trace(f"the device code of '{op.name}'")
    for target in cuda_targets_for(*capability):
        recipe = device_code_recipe(op, target, any_compiler=True)
        refusal = functools.partial(driver_refusal, target, driver=driver_version())
        found = prebuilt.find_device_code(op.name, target, recipe.key, refusal, trace)
        if found is not None:
            return found
    return None


def _code_problem(op: Op, capability: tuple[int, int]) -> str:
    if _prebuilt(op, capability) is not None:
        return ""
    try:
        target_here(capability)
    except OpError as error:
        return str(error)
    return ""


def _cuda() -> CUDA_Accelerator:
    from ...accelerator.cuda_accelerator import CUDA_Accelerator

    return CUDA_Accelerator()


def _capabilities() -> list[tuple[int, int]]:
    cuda = _cuda()
    return [cuda.get_device_capability(device) for device in range(cuda.device_count())]
