"""Colossal-AI's loaders that are for no single op: their implementations, by the loader's name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..choosing import best_of
from ..implementations import BuiltImplementation, implementations_of
from ..kernel_extensions import KernelExtension, has_device
from ..table import OPS

if TYPE_CHECKING:
    from collections.abc import Callable

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


def _fused_optimizers() -> list[KernelExtension]:
    cuda = "cuda"  # anyaccel: ignore[device-name]
    return [
        BuiltImplementation("fused_optim_cuda", "FusedAdamBuilder", cuda, partial(has_device, cuda), priority=5),
        BuiltImplementation("fused_optim_cpu", "FusedAdamBuilder", "cpu", _is_cpu_current),
    ]


def _is_cpu_current() -> bool:
    from ...accelerator import get_accelerator

    return get_accelerator().device_name() == "cpu"


def _attention() -> list[type[KernelExtension]]:
    from .attention import FlashAttentionPackageExtension, FlashAttentionSDPAExtension

    return [FlashAttentionPackageExtension, FlashAttentionSDPAExtension]


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
}
