"""AMD GPUs as a device of this project's ops: pip's ziglang compiles kernels for the GPUs of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..device_kernels import register_kernels
from ..engine import environment, prebuilt
from ..engine.build import ensure_built
from ..engine.cache import open_cache
from ..engine.errors import OpError, OpLoadError
from ..engine.trace import Trace
from .device_code import device_code_recipe
from .runtime import HipRuntimeBuilder

if TYPE_CHECKING:
    from ...accelerator.cuda_accelerator import CUDA_Accelerator
    from ..engine.entry import Entry
    from ..op import Op

__all__ = ["HipDevice", "device_code"]


class HipDevice:
    """AMD GPUs, which are the "cuda" devices of a ROCm build of torch."""

    kind = "hip"
    namespace = "anyaccel"

    def require(self, op: str) -> None:
        from ...accelerator.detection import kernel_rejection

        problem = kernel_rejection(self.kind)
        if problem:
            msg = (
                f"loading the op '{op}' failed: torch cannot use an AMD GPU here: {problem}. "
                f"Fix: use the CPU's builder, or install a ROCm build of torch and AMD's driver."
            )
            raise OpLoadError(msg)

    def code_problem(self, op: Op) -> str:
        return "; ".join(filter(None, (_code_problem(op, target) for target in dict.fromkeys(_targets()))))

    def load_runtime(self) -> None:
        HipRuntimeBuilder().load()

    def register(self, op: Op) -> None:
        runtime = HipRuntimeBuilder().load()
        kernels: dict[str, dict[str, int]] = {}
        current = _torchs().current_device()
        for device, target in enumerate(_targets()):
            if target not in kernels:
                entry = device_code(op, target)
                code = runtime.load(op.name, entry.binary.read_bytes())
                symbols = entry.facts["symbols"]
                kernels[target] = {
                    name: runtime.kernel(op.name, code, symbols[name]) for name in op.kernels_for(self.kind)
                }
            if device == current:  # on other devices it is loaded on first use
                for kernel in kernels[target].values():
                    runtime.prepare(op.name, kernel, device)
            units = _torchs().get_device_properties(device).multi_processor_count
            register_kernels(op.name, runtime, device, kernels[target], units)


def device_code(op: Op, target: str) -> Entry:
    """Return the device code for an AMD GPU: prebuilt, cached, or compiled now.

    Raises:
        ToolchainError: when the code must be compiled and ziglang is not found.
        BuildError: when clang rejects the source, or does not know the GPU.
    """
    found = _prebuilt(op, target)
    if found is not None:
        return found
    recipe = device_code_recipe(op, target)
    return ensure_built(recipe, open_cache(environment.cache_dir()), environment.build_jobs())


def _prebuilt(op: Op, target: str) -> Entry | None:
    trace = Trace(f"the device code of '{op.name}'")
    recipe = device_code_recipe(op, target, any_compiler=True)
    return prebuilt.find_device_code(op.name, target, recipe.key, lambda _: "", trace)


def _code_problem(op: Op, target: str) -> str:
    if _prebuilt(op, target) is not None:
        return ""
    try:
        device_code_recipe(op, target)
    except OpError as error:
        return str(error)
    return ""


def _torchs() -> CUDA_Accelerator:
    from ...accelerator.cuda_accelerator import CUDA_Accelerator

    return CUDA_Accelerator()


def _targets() -> list[str]:
    """Return each device's architecture: ``gfx90a`` for ``gfx90a:sramecc+:xnack-``, as its code works in every mode."""
    torchs = _torchs()
    names = [str(torchs.get_device_properties(device).gcnArchName) for device in range(torchs.device_count())]
    return [name.partition(":")[0] for name in names]
