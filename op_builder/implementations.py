"""The implementations of kernels that this project brings."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar

from .engine.trace import Trace
from .kernel_extensions import CppExtension, CudaExtension, KernelExtension, SyclExtension, TritonExtension

if TYPE_CHECKING:
    from .builder import OpBuilder

__all__ = [
    "CPUAdamArmExtension",
    "CPUAdamX86Extension",
    "DenseTritonExtension",
    "FusedOptimizerCPUExtension",
    "FusedOptimizerCUDAExtension",
    "InferenceOpsExtension",
    "RMSNormTritonExtension",
    "SoftmaxTritonExtension",
    "SyclOnHostExtension",
    "implementations_of",
]

_X86 = ("x86_64", "AMD64")
_ARM = ("aarch64", "arm64")


class SyclOnHostExtension(SyclExtension):
    """An implementation for the CPU by Intel's OpenCL, which is how SYCL code is tested where there is no XPU."""

    priority = 0
    support_aot = False

    def is_available(self) -> bool:
        from .engine.toolchains.sycl import probe_dpcpp

        return probe_dpcpp().tool is not None


def implementations_of(op: str, builder: str) -> list[type[KernelExtension]]:
    """Return the implementations of an op whose kernels are written once for every device.

    Args:
        op: the op's name; with the device's it makes the names to ask for, but for ``"sycl"``.
        builder: the name of its builders in ``cpu/kernels.py``, ``cuda/kernels.py`` and ``xpu/kernels.py``.
    """

    def made(base: Any, name: str, device: str, builder: str, **attributes: Any) -> type[KernelExtension]:
        def build(_: KernelExtension) -> OpBuilder:
            module = importlib.import_module(f".{device}.kernels", __package__)
            found: OpBuilder = getattr(module, builder)()
            return found

        content = {"name": name, "builder": build, "__doc__": f"{op} on {name}.", "__module__": __name__, **attributes}
        return type(f"{op}_{name}", (base,), content)

    return [
        made(CudaExtension, f"{op}_cuda", "cuda", builder, priority=5),  # anyaccel: ignore[device-name]
        made(SyclExtension, f"{op}_xpu", "xpu", builder, priority=5),
        made(CppExtension, f"{op}_x86", "cpu", builder, machines=_X86),
        made(CppExtension, f"{op}_arm", "cpu", builder, machines=_ARM),
        made(SyclOnHostExtension, "sycl", "xpu", builder.replace("Builder", "OnHostBuilder")),
    ]


class RMSNormTritonExtension(TritonExtension):
    """RMSNorm in Triton; below CUDA until it is measured to be faster there."""

    name = "triton"
    priority = 3

    def load(self) -> Any:
        from .cuda.triton_kernels import TritonRMSNorm

        return TritonRMSNorm()


class SoftmaxTritonExtension(TritonExtension):
    """Softmax in Triton; below CUDA until it is measured to be faster there."""

    name = "triton"
    priority = 3

    def load(self) -> Any:
        from .cuda.triton_kernels import TritonSoftmax

        return TritonSoftmax()


class DenseTritonExtension(TritonExtension):
    """The dense layer's activation in Triton; below CUDA until it is measured to be faster there."""

    name = "triton"
    priority = 3

    def load(self) -> Any:
        from .cuda.triton_dense import TritonDense

        return TritonDense()


class InferenceOpsExtension(KernelExtension):
    """Kernels of inference, whichever implementation of each is the best here."""

    name = "inference_ops"
    support_aot = False
    support_jit = False

    def is_available(self) -> bool:
        return True

    def assert_compatible(self) -> None:
        from . import kernel_loader

        for loader in self._loaders(kernel_loader):
            loader.usable(Trace(type(loader).__name__))

    def load(self) -> Any:
        from . import kernel_loader
        from .functions.inference import InferenceOps

        return InferenceOps(*(loader.load() for loader in self._loaders(kernel_loader)))

    def _loaders(self, loaders: Any) -> list[Any]:
        return [loaders.RMSNormLoader(), loaders.ActivationsLoader(), loaders.RotaryEmbeddingLoader()]


class CPUAdamX86Extension(CppExtension):
    """Adam on x86-64 CPUs."""

    name = "cpu_adam_x86"
    machines: ClassVar = _X86

    def builder(self) -> OpBuilder:
        from .cpu.cpu_adam import CPUAdamBuilder

        return CPUAdamBuilder()


class CPUAdamArmExtension(CPUAdamX86Extension):
    """Adam on Arm CPUs: the same sources, whose loops the compiler vectorises for either."""

    name = "cpu_adam_arm"
    machines: ClassVar = _ARM


class FusedOptimizerCPUExtension(CppExtension):
    """Multi-tensor optimizers for tensors on the CPU."""

    name = "fused_optim_cpu"

    def is_available(self) -> bool:
        from ..accelerator import get_accelerator

        return get_accelerator().device_name() == "cpu"

    def builder(self) -> OpBuilder:
        from .cpu.fused_adam import FusedAdamBuilder

        return FusedAdamBuilder()


class FusedOptimizerCUDAExtension(CudaExtension):
    """Multi-tensor optimizers for tensors on NVIDIA's GPUs."""

    name = "fused_optim_cuda"
    priority = 5

    def builder(self) -> OpBuilder:
        from .cuda import deepspeed

        builder: OpBuilder = deepspeed.FusedAdamBuilder()
        return builder
