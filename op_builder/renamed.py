"""Builders by deepspeed's names: the same ops, behind deepspeed's function names and arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .functions.deepspeed_optimizers import CPUAdagrad, CPULion, FusedAdam, FusedLamb, FusedLion
from .functions.deepspeed_quantizers import FPQuantizer, Quantizer
from .functions.inference import InferenceCore

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from .kernel_op import KernelOp

__all__ = ["deepspeed_builders"]

_NAMES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "CPUAdagradBuilder": ("cpu_adagrad", "AdagradBuilder", CPUAdagrad),
    "CPULionBuilder": ("cpu_lion", "LionBuilder", CPULion),
    "FusedAdamBuilder": ("fused_adam", "MultiTensorAdamBuilder", FusedAdam),
    "FusedLambBuilder": ("fused_lamb", "LambBuilder", FusedLamb),
    "FusedLionBuilder": ("fused_lion", "LionBuilder", FusedLion),
    "FPQuantizerBuilder": ("fp_quantizer", "QuantizationBuilder", FPQuantizer),
    "QuantizerBuilder": ("quantizer", "QuantizationBuilder", Quantizer),
}
"""deepspeed's builder: its op's name, the builder here, and what makes deepspeed's module of the functions."""


def deepspeed_builders(kernels: ModuleType) -> dict[str, type[KernelOp]]:
    """Return the builders of a device by deepspeed's names.

    Args:
        kernels: the device's module of builders.
    """
    found = {
        name: _renamed(name, op, getattr(kernels, builder), module) for name, (op, builder, module) in _NAMES.items()
    }
    return {**found, "InferenceCoreBuilder": _inference_core(kernels)}


def _renamed(name: str, op: str, builder: type[KernelOp], module: Callable[[Any], Any]) -> type[KernelOp]:
    """Return a class that loads what ``builder`` does: one library serves both, as a second would define its ops again."""

    class Renamed(builder):  # type: ignore[misc,valid-type]
        NAME = op

        def __init__(self) -> None:
            super().__init__(builder.NAME)

        def require_torch(self) -> None:
            builder().require_torch()

        def load(self, verbose: bool = False) -> Any:
            return module(builder().load(verbose))

        def jit_load(self, verbose: bool = True) -> Any:
            return module(builder().jit_load(verbose))

    Renamed.__name__ = Renamed.__qualname__ = name
    Renamed.__doc__ = f"Loads ``{builder.NAME}`` as deepspeed's ``{op}``."
    return Renamed


def _inference_core(kernels: ModuleType) -> type[KernelOp]:
    others = kernels.LayerNormBuilder, kernels.ActivationsBuilder

    def with_others(rms_norm: Any) -> InferenceCore:
        layer_norm, activations = (other().load() for other in others)
        return InferenceCore(rms_norm, layer_norm, activations)

    return _renamed("InferenceCoreBuilder", "inference_core_ops", kernels.RMSNormBuilder, with_others)
