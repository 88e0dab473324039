"""Colossal-AI's loaders that do not belong to a single op: their implementations, by loader name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..all_ops import builder_class
from ..choosing import best_of
from ..engine.errors import OpLoadError
from ..implementations import implementations_of
from ..kernel_extensions import KernelExtension, has_device
from ..op import KERNEL_DEVICES
from ..table import OPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..builder import OpBuilder

__all__ = ["COLOSSALAI_LOADERS"]


class InferenceOpsExtension(KernelExtension):
    """Inference kernels; each uses the best implementation available here."""

    name = "inference_ops"
    support_aot = False
    support_jit = False

    def is_available(self) -> bool:
        return True

    def assert_compatible(self) -> None:
        pass

    def load(self) -> Any:
        from .inference import InferenceOps

        rows = {op.name: op for op in OPS}
        return InferenceOps(*(best_of(implementations_of(rows[name])) for name in _INFERENCE))


_INFERENCE = ("rms_norm", "activations", "rotary_embedding")


class FusedOptimizerExtension(KernelExtension):
    """Multi-tensor optimizers on one kind of device.

    Args:
        name: the name to request it by.
        device: the device whose builders it uses.
        serves: returns whether it is available on this machine.
        priority: the highest available priority is chosen.
    """

    support_aot = False

    def __init__(self, name: str, device: str, serves: Callable[[], bool], priority: int) -> None:
        self.name, self.priority = name, priority
        self._device, self._serves = device, serves

    def is_available(self) -> bool:
        return self._serves()

    def assert_compatible(self) -> None:
        for builder in self._builders():
            reason = builder.incompatibility()
            if reason:
                raise OpLoadError(reason)

    def load(self) -> Any:
        from .optimizers import FusedOptimizerModule

        return FusedOptimizerModule(*(builder.load() for builder in self._builders()))

    def build_jit(self) -> Any:
        return self.load()

    def _builders(self) -> list[OpBuilder]:
        found = (builder_class(name, self._device) for name in _FUSED)
        return [builder() for builder in found if builder is not None]


_FUSED = ("MultiTensorAdamBuilder", "SGDBuilder", "MultiTensorBuilder")


def _fused_optimizers() -> list[KernelExtension]:
    on_devices = [
        FusedOptimizerExtension(f"fused_optim_{kind}", kind, partial(has_device, kind), 5) for kind in KERNEL_DEVICES
    ]
    return [*on_devices, FusedOptimizerExtension("fused_optim_cpu", "cpu", _is_cpu_current, 1)]


def _is_cpu_current() -> bool:
    from ...accelerator import get_accelerator

    return get_accelerator().device_name() == "cpu"


def _attention() -> list[type[KernelExtension]]:
    from .attention import FlashAttentionPackageExtension, FlashAttentionSDPAExtension

    return [FlashAttentionPackageExtension, FlashAttentionSDPAExtension]


def _attention_by_package() -> list[type[KernelExtension]]:
    from .attention import FlashAttentionPackageExtension

    return [FlashAttentionPackageExtension]


def _attention_with_masks() -> list[type[KernelExtension]]:
    from .attention import FlashAttentionSDPAExtension

    return [FlashAttentionSDPAExtension]


COLOSSALAI_LOADERS: dict[str, tuple[str, Callable[[], list[Any]]]] = {
    "FusedOptimizerLoader": ("Multi-tensor optimizers for parameters on the accelerator", _fused_optimizers),
    "InferenceOpsLoader": (
        "Inference kernels with Colossal-AI's names, which write to given tensors",
        lambda: [InferenceOpsExtension],
    ),
    "FlashAttentionLoader": (
        "Attention that does not store the scores: ``attention(query, key, value, ...)``",
        _attention,
    ),
    "FlashAttentionDaoLoader": ("The same, by the package ``flash-attn`` only", _attention_by_package),
    "FlashAttentionWithCustomMaskLoader": (
        "The same, with any ``attention_mask``",
        _attention_with_masks,
    ),
    "FlashAttentionForFloatAndCustomMaskLoader": (
        "The same, with any ``attention_mask``, also for float32",
        _attention_with_masks,
    ),
}
