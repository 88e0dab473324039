"""Colossal-AI's loaders that are for no single op: their implementations, by the loader's name."""

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
    """Kernels of inference, whichever implementation of each is the best here."""

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
        name: by which a user may ask for it.
        device: whose builders' ops it takes.
        serves: returns whether it serves on this machine.
        priority: the highest among those that serve is chosen.
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


def _attention_with_masks() -> list[type[KernelExtension]]:
    from .attention import FlashAttentionSDPAExtension

    return [FlashAttentionSDPAExtension]


COLOSSALAI_LOADERS: dict[str, tuple[str, Callable[[], list[Any]]]] = {
    "FusedOptimizerLoader": ("Multi-tensor optimizers for parameters on the accelerator", _fused_optimizers),
    "InferenceOpsLoader": (
        "Kernels of inference by Colossal-AI's names, into given tensors",
        lambda: [InferenceOpsExtension],
    ),
    "FlashAttentionLoader": (
        "Attention that does not store the scores: ``attention(query, key, value, ...)``",
        _attention,
    ),
    "FlashAttentionWithCustomMaskLoader": (
        "The same, where ``attention_mask`` may be any",
        _attention_with_masks,
    ),
    "FlashAttentionForFloatAndCustomMaskLoader": (
        "The same, where it may be any and tensors may be float32",
        _attention_with_masks,
    ),
}
